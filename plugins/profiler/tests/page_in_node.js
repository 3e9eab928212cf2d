// Run the code of a page in node: `node page_in_node.js page.html`. It opens, searches and zooms
// every view over a document of which there is just enough, and prints what chunk 0 holds.
const page = require("fs").readFileSync(process.argv[2], "utf8");
globalThis.chunks = Object.fromEntries(
  [...page.matchAll(/<script type="text\/plain" id="(\w+)">(.*)<\/script>/g)].map(m => [m[1], m[2]]));
const element = () => new Proxy({}, {
  get(target, key) {
    if (key in target) return target[key];
    const known = {value: "", width: 500, height: 500, clientWidth: 500, children: [], dataset: {}, style: {},
      querySelectorAll: () => [], querySelector: () => null, append() {}, getAttribute: () => "500",
      classList: {toggle() {}}, textContent: globalThis.chunks[target.id] ?? "",
      getContext: () => new Proxy({}, {get: () => () => 0, set: () => true})};
    return key === Symbol.toPrimitive ? () => "" : known[key];
  },
  set(target, key, value) { target[key] = value; return true; }});
const elements = {};
globalThis.document = {title: "", createElement: element, querySelectorAll: () => [],
  getElementById(id) { if (!elements[id]) { elements[id] = element(); elements[id].id = id; } return elements[id]; }};
const code = /<script>(.*?)<\/script>/s.exec(page)[1];
const drive = `
(async () => {
  for (const name of tabs) show(name);
  for (const box of ["find", "module", "look"]) { el(box).value = "linear"; el(box).oninput(); }
  el("time").onwheel({preventDefault() {}, offsetX: 200, deltaY: -1});
  views.zoom(0, data.timeline.span / 100);
  await new Promise(done => setTimeout(done, 50));
  views.zoom(0, data.timeline.span / 100);
  el("time").onpointermove({offsetX: 10, offsetY: 30});
  const part = await unpack("chunk0", data.timeline.chunks[0]);
  console.log(JSON.stringify([...part.start].concat([...part.name])));
})();
`;
(0, eval)(code.replace('"use strict";', "") + drive);
