// Put into a page, this opens, searches and zooms every view in the browser that shows the page, and
// leaves what it saw as JSON in the page's place.
(async () => {
  const told = {};
  const wait = () => new Promise(done => setTimeout(done, 150));
  const ink = id => { const c = el(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
    let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; };
  for (const name of tabs) {
    [...document.querySelectorAll("nav button")].find(b => b.textContent === name).click();
    await wait();
    told[name] = el(name).clientHeight;
  }
  told.ink = ["time", "flame", "curve", "roof"].map(id => { const view = el(id).closest("section").id; show(view); return ink(id); });
  show("Ops"); const box = el("Ops").querySelector("input"), before = el("Ops").querySelectorAll("tr").length;
  box.value = "linear"; box.dispatchEvent(new Event("input")); told.rows = [before, el("Ops").querySelectorAll("tr").length];
  show("Timeline"); el("find").value = "linear"; el("find").dispatchEvent(new Event("input")); told.found = el("under").textContent;
  el("find").value = "";
  for (let k = 0; k < 3; k++) el("time").dispatchEvent(new WheelEvent("wheel", {deltaY: -1, clientX: 300, clientY: 200, cancelable: true}));
  await wait(); told.wheeled = ink("time");
  // Within the longest event something is drawn from one side to the other.
  const t = data.timeline.first, k = t.length.indexOf(Math.max(...t.length));
  views.zoom(t.start[k], t.start[k] + t.length[k] / 30); await wait(); await wait(); told.zoomed = ink("time");
  show("Modules"); el("module").value = "linear"; el("module").dispatchEvent(new Event("input")); await wait(); told.modules = el("tree").textContent;
  show("Lines"); el("Lines").querySelector("tr[data-n]").click(); told.source = el("Lines").querySelector("pre.source [data-hot]").textContent;
  show("Flames"); el("flame").dispatchEvent(new MouseEvent("click", {clientX: 200, clientY: 200})); told.flames = ink("flame");
  document.body.innerHTML = '<pre id="told"></pre>'; el("told").textContent = JSON.stringify(told);
})().catch(error => { document.body.innerHTML = '<pre id="told"></pre>'; el("told").textContent = JSON.stringify({error: String(error.stack)}); });
