const el = id => document.getElementById(id);
const text = s => String(s).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
const ms = ns => ns >= 1e9 ? (ns / 1e9).toFixed(3) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(1) + " us";
const bytes = n => Math.abs(n) >= 1 << 20 ? (n / (1 << 20)).toFixed(1) + " MiB" : Math.abs(n) >= 1024 ? (n / 1024).toFixed(1) + " KiB" : n + " B";
const percent = x => (100 * x).toFixed(1) + " %";
const hue = s => { let h = 7; for (const c of s) h = (h * 31 + c.codePointAt(0)) % 360; return `hsl(${h} 52% 70%)`; };
const base = file => file.slice(file.lastIndexOf("/") + 1);
const drawn = {};

function show(name) {
  for (const s of document.querySelectorAll("section")) s.classList.toggle("on", s.id === name);
  for (const b of document.querySelectorAll("nav button")) b.classList.toggle("on", b.textContent === name);
  if (!drawn[name]) { drawn[name] = true; views[name](); }
}

// A table whose columns sort and whose first column is searched.
function table(target, heads, rows, shown, order, chosen) {
  let down = true;
  const box = document.createElement("input"), place = document.createElement("div");
  if (chosen) place.className = "short";
  box.placeholder = "search";
  const draw = () => {
    const wanted = box.value.toLowerCase();
    const some = rows.filter(r => String(r[0]).toLowerCase().includes(wanted));
    some.sort((a, b) => (a[order] < b[order] ? 1 : a[order] > b[order] ? -1 : 0) * (down ? 1 : -1));
    place.innerHTML = "<table><tr>" + heads.map((h, k) => `<th data-k="${k}"${h === "source" ? " class=text" : ""}>${text(h)}</th>`).join("") + "</tr>" +
      some.slice(0, 500).map((r, n) => `<tr data-n="${n}">` + heads.map((h, k) => {
        const value = shown[k] ? shown[k](r[k], r) : text(r[k]);
        return `<td${h === "source" || h === "shapes" ? " class=text" : ""}>${value}</td>`;
      }).join("") + "</tr>").join("") + "</table>" +
      (some.length > 500 ? `<p class="note">${some.length - 500} more rows</p>` : "");
    for (const th of place.querySelectorAll("th")) th.onclick = () => {
      const k = +th.dataset.k; down = k === order ? !down : true; order = k; draw();
    };
    if (chosen) for (const tr of place.querySelectorAll("tr[data-n]")) tr.onclick = () => chosen(some[+tr.dataset.n]);
  };
  box.oninput = draw; target.append(box, place); draw();
}
const bar = (value, most) => `<span class="bar" style="width:${Math.max(1, 60 * value / (most || 1))}px"></span>`;

function sized(canvas) {
  const ratio = globalThis.devicePixelRatio || 1, high = +canvas.getAttribute("height");
  if (!canvas.dataset.high) canvas.dataset.high = high;
  canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.dataset.high * ratio;
  canvas.style.height = canvas.dataset.high + "px";
  const g = canvas.getContext("2d"); g.setTransform(ratio, 0, 0, ratio, 0, 0); return g;
}
function label(g, s, x, y, w) {
  g.font = "11px system-ui,sans-serif";
  if (w < 42 && (w < 20 || g.measureText(s).width > w - 5)) return;  // a few letters tell nothing
  g.fillStyle = "#101820";
  g.save(); g.beginPath(); g.rect(x, y, w - 2, 18); g.clip(); g.fillText(s, x + 3, y + 13); g.restore();
}

// --- packed columns: see levels.py ----------------------------------------------------------------

async function unpack(name, head) {
  const raw = Uint8Array.from(atob(el(name).textContent), c => c.codePointAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = new Uint32Array(await new Response(stream).arrayBuffer()), n = head.size;
  const out = {start: new Float64Array(n), length: new Float64Array(n)};
  for (let i = 0, at = 0; i < n; i++) { at += all[i]; out.start[i] = head.base + at * head.unit; out.length[i] = all[n + i] * head.unit; }
  head.columns.forEach((column, k) => { out[column] = all.subarray((k + 2) * n, (k + 3) * n); });
  if (!out.count) out.count = null;
  return out;
}

const CLOSE = 8;  // of no more chunks at once are all events shown
class Levels {
  constructor(timeline) {
    this.t = timeline; this.parts = new Map(); this.asked = new Set(); this.changed = () => {};
  }
  need(name, head) {
    if (this.parts.has(name) || this.asked.has(name)) return this.parts.get(name);
    this.asked.add(name);
    unpack(name, head).then(part => { this.parts.set(name, part); this.changed(); });
    return undefined;
  }
  // What to draw between two times: [columns, shortest length, longest length].
  between(a, b) {
    const t = this.t, found = [];
    if (b - a > t.span / 20) return [[t.first, 0, Infinity]];
    const near = [];
    t.chunks.forEach((head, k) => { if (head.base <= b && head.end >= a) near.push(k); });
    const fine = this.need("fine", t.fine);
    if (!fine) return [[t.first, 0, Infinity]];
    if (near.length > CLOSE) return [[fine, 0, Infinity]];
    const parts = near.map(k => this.need("chunk" + k, t.chunks[k]));
    if (!parts.every(Boolean)) return [[fine, 0, Infinity]];
    // Long events that began in an earlier chunk are in the level.
    found.push([fine, t.fine.cell, Infinity]);
    for (const part of parts) found.push([part, 0, t.fine.cell]);
    return found;
  }
}

const views = {
  Advice() {
    const cards = data.advice.map(([said, , view]) =>
      `<div class="card">${text(said).replace(/^\d+ %/, "<b>$&</b>")} <a data-view="${view}">${view}</a></div>`);
    el("Advice").innerHTML = cards.join("") || "<p>Nothing stands out.</p>";
    for (const a of el("Advice").querySelectorAll("a")) a.onclick = () => show(a.dataset.view);
  },
  Ops() {
    const most = data.ops.length ? data.ops[0][2] : 1;
    table(el("Ops"), ["op", "calls", "own time", "whole time", "own memory", "operations"], data.ops,
      [null, n => n.toLocaleString("en"), v => bar(v, most) + ms(v * 1e3), v => ms(v * 1e3), bytes, n => n ? n.toExponential(2) : ""], 2);
  },
  Modules() {
    const total = data.modules[1];
    const node = (n, wanted) => {
      const inside = n[3].some(c => matches(c, wanted));
      if (wanted && !inside && !n[0].toLowerCase().includes(wanted)) return null;
      const line = `${bar(n[1], total)}${text(n[0] || "program")} &mdash; ${ms(n[1])} (${percent(total ? n[1] / total : 0)}), ${bytes(n[2])}`;
      if (!n[3].length) { const p = document.createElement("div"); p.style.marginLeft = "2.2em"; p.innerHTML = line; return p; }
      const d = document.createElement("details"); d.innerHTML = `<summary>${line}</summary>`;
      d.ontoggle = () => { if (d.open && d.children.length === 1) for (const c of n[3]) { const made = node(c, wanted); if (made) d.append(made); } };
      d.open = n === data.modules || Boolean(wanted && inside);
      return d;
    };
    const matches = (n, wanted) => !wanted || n[0].toLowerCase().includes(wanted) || n[3].some(c => matches(c, wanted));
    const draw = () => { el("tree").innerHTML = ""; const made = node(data.modules, el("module").value.toLowerCase()); if (made) el("tree").append(made); };
    el("module").oninput = draw; draw();
  },
  Lines() {
    const most = data.lines.length ? data.lines[0][2] : 1, place = document.createElement("div");
    const open = (file, line) => {
      const found = data.sources[file], spent = new Map(data.lines.filter(r => r[0] === file).map(r => [r[1], r]));
      place.innerHTML = !found || !found.length ? `<p class="note">The source of ${text(file)} was not there.</p>` :
        `<h3>${text(file)}</h3><pre class="source">` + found.map((s, k) => {
          const r = spent.get(k + 1), heat = r ? Math.min(1, r[2] / most) : 0;
          return `<div style="background:rgba(214,92,64,${(.5 * heat).toFixed(3)})"${k + 1 === line ? " data-hot=1" : ""}><span>${r ? ms(r[2]) + " " + r[3] + "x" : ""}</span>${String(k + 1).padStart(5)}  ${text(s)}</div>`;
        }).join("") + "</pre>";
      const hot = place.querySelector("[data-hot]"); if (hot) hot.parentNode.scrollTop = hot.offsetTop - 60;
    };
    table(el("Lines"), ["line", "calls", "own time", "memory", "source"],
      data.lines.map(r => [base(r[0]) + ":" + r[1], r[3], r[2], r[5], r[4], r[0], r[1]]),
      [null, n => n.toLocaleString("en"), v => bar(v, most) + ms(v), bytes], 2, r => open(r[5], r[6]));
    el("Lines").append(place); if (data.lines.length) open(data.lines[0][0], data.lines[0][1]);
  },
  Timeline() {
    const c = el("time"), t = data.timeline, levels = new Levels(t), row = 18;
    let g = sized(c), a = 0, b = Math.max(t.span, 1), up = 0, shown = [];
    // Tracks lie below each other, each as high as its deepest event, under a line with its name.
    const tops = [], heights = t.tracks.map(() => 0);
    for (const [track, depth] of t.rows) heights[track] = Math.max(heights[track], depth + 1);
    let high = 0; t.tracks.forEach((_, k) => { tops[k] = high; high += (heights[k] + 1) * row + 8; });
    const draw = () => {
      const wide = c.clientWidth, f = wide / (b - a), wanted = el("find").value.toLowerCase();
      g.clearRect(0, 0, wide, 560); shown = []; let hits = 0;
      t.tracks.forEach((name, k) => { g.fillStyle = "#5a6878"; g.font = "11px system-ui,sans-serif"; g.fillText(name, 3, tops[k] - up + 13); });
      const last = new Map();
      for (const [part, least, most] of levels.between(a, b)) {
        for (let i = 0; i < part.start.length; i++) {
          const start = part.start[i], length = part.length[i];
          if (start > b) break;
          if (length < least || length >= most || start + length < a) continue;
          const [track, depth] = t.rows[part.row[i]], y = tops[track] + (depth + 1) * row - up;
          if (y < 0 || y > 560) continue;
          const x = (start - a) * f, w = length * f, at = last.get(y);
          if (w < .7 && at !== undefined && x - at < .7) continue;
          last.set(y, x + w);
          const name = t.names[part.name[i]], hit = wanted && name.toLowerCase().includes(wanted);
          if (hit) hits++;
          g.fillStyle = wanted ? (hit ? "#e0682f" : "#e3e7ec") : hue(name);
          g.fillRect(x, y, Math.max(w, .7), row - 1);
          const many = part.count ? part.count[i] : 1;
          label(g, many > 1 ? `${many} events` : name, Math.max(x, 0), y, Math.min(x + w, wide) - Math.max(x, 0));
          if (shown.length < 100000) shown.push([x, y, w, name, start, length, many]);
        }
      }
      if (wanted) el("under").textContent = `${hits} of what is drawn match`;
    };
    levels.changed = draw; el("find").oninput = draw;
    c.onwheel = v => {
      v.preventDefault();
      if (v.shiftKey) { up = Math.max(0, Math.min(high - 200, up + v.deltaY)); draw(); return; }
      const at = a + (b - a) * v.offsetX / c.clientWidth, k = v.deltaY > 0 ? 1.25 : .8;
      a = at - (at - a) * k; b = at + (b - at) * k; draw();
    };
    c.ondblclick = () => { a = 0; b = Math.max(t.span, 1); up = 0; draw(); };
    let held = null;
    c.onpointerdown = v => { held = [v.offsetX, v.offsetY]; };
    c.onpointerup = c.onpointerleave = () => { held = null; };
    c.onpointermove = v => {
      if (held) {
        const d = (held[0] - v.offsetX) * (b - a) / c.clientWidth; a += d; b += d;
        up = Math.max(0, Math.min(Math.max(0, high - 200), up + held[1] - v.offsetY)); held = [v.offsetX, v.offsetY]; draw(); return;
      }
      const q = shown.find(s => v.offsetX >= s[0] && v.offsetX <= s[0] + Math.max(s[2], 1) && v.offsetY >= s[1] && v.offsetY < s[1] + row);
      el("under").textContent = q ? `${q[6] > 1 ? q[6] + " events, the longest " : ""}${q[3]}: ${ms(q[5])} at ${ms(q[4])}` :
        t.left_out ? `${t.left_out} of the shortest events are in the overview only` : `${t.count.toLocaleString("en")} events in ${ms(t.span)}`;
    };
    globalThis.onresize = () => { g = sized(c); draw(); };
    views.zoom = (from, to) => { a = from; b = to; draw(); };
    draw();
  },
  Flames() {
    const c = el("flame"), g = sized(c); let root = data.flames, boxes = [];
    const draw = () => {
      const wide = c.clientWidth, wanted = el("look").value.toLowerCase();
      g.clearRect(0, 0, wide, 560); boxes = []; let found = 0;
      const put = (n, x, w, d) => {
        if (w < .7 || d * 18 > 560) return;
        const hit = wanted && n[0].toLowerCase().includes(wanted); if (hit) found += n[1];
        g.fillStyle = wanted ? (hit ? "#e0682f" : "#e3e7ec") : hue(n[0]); g.fillRect(x, d * 18, w - .5, 17); boxes.push([x, d * 18, w, n]);
        label(g, n[0] || "program", x, d * 18, w);
        let at = x; for (const k of n[3]) { const part = w * k[1] / (n[1] || 1); put(k, at, part, d + 1); at += part; }
      };
      put(root, 0, wide, 0);
      if (wanted) el("frame").textContent = `matching frames: ${ms(found)}`;
    };
    const under = v => boxes.find(q => v.offsetX >= q[0] && v.offsetX < q[0] + q[2] && v.offsetY >= q[1] && v.offsetY < q[1] + 18);
    c.onclick = v => { const q = under(v); root = q && q[3] !== root ? q[3] : data.flames; draw(); };
    c.onpointermove = v => { const q = under(v); if (q) el("frame").textContent = `${q[3][0] || "program"}: ${ms(q[3][1])}, ${percent(q[3][1] / (data.flames[1] || 1))}`; };
    el("look").oninput = draw; draw();
  },
  Memory() {
    const m = data.memory, c = el("curve"), g = sized(c), wide = c.clientWidth, high = 260;
    const colours = ["#2f6db3", "#d9a441", "#555f6b", "#9a7fc0", "#d65c40", "#4aa37a", "#c6ccd4"];
    el("key").innerHTML = m.kinds.map((k, i) => `<span style="background:${colours[i]}"></span>${text(k)}`).join("");
    const split = m.kinds.map((k, i) => [k, m.at_peak.filter(r => r[2] === k).reduce((s, r) => s + r[1], 0)]).filter(r => r[1]);
    el("peak").innerHTML = m.peak ? `<h3>The peak of ${bytes(m.peak)} at ${ms(m.when)}: ${split.map(r => `${r[0]} ${bytes(r[1])}`).join(", ")}</h3>` : "<p>Memory was not recorded.</p>";
    table(el("peak"), ["made by", "bytes", "kind", "blocks"], m.at_peak, [null, v => bar(v, m.peak) + bytes(v)], 1);
    if (!m.times.length) return;
    const t0 = Math.max(0, m.times[0]), t1 = Math.max(m.times[m.times.length - 1], t0 + 1), x = t => (t - t0) / (t1 - t0) * wide;
    const sums = m.held.map(() => 0);
    m.kinds.forEach((_, k) => {
      g.beginPath(); g.moveTo(0, high);
      const upper = [];
      m.held.forEach((row, i) => { const below = sums[i]; sums[i] += row[k]; upper.push([x(m.times[i]), below, sums[i]]); });
      upper.forEach(([at, , above], i) => { const y = high * (1 - .95 * above / (m.peak || 1)); if (i) g.lineTo(at, high * (1 - .95 * upper[i - 1][2] / (m.peak || 1))); g.lineTo(at, y); });
      for (let i = upper.length - 1; i >= 0; i--) { const y = high * (1 - .95 * upper[i][1] / (m.peak || 1)); g.lineTo(i + 1 < upper.length ? upper[i + 1][0] : wide, y); g.lineTo(upper[i][0], y); }
      g.fillStyle = colours[k]; g.fill();
    });
    g.strokeStyle = "#1d2733"; g.setLineDash([4, 3]); g.beginPath(); g.moveTo(x(m.when), 0); g.lineTo(x(m.when), high); g.stroke(); g.setLineDash([]);
  },
  Roofline() {
    const r = data.roofline, c = el("roof"), g = sized(c), wide = c.clientWidth, high = 340;
    if (!r.points.length) { el("machine").textContent = "Shapes were not recorded, so nothing is known of the work of ops."; return; }
    const rate = r.bandwidth[r.bandwidth.length - 1][1], near = r.bandwidth[0][1];
    el("machine").textContent = `This machine, measured: ${(r.flops / 1e9).toFixed(0)} GFLOP/s, ${(near / 1e9).toFixed(0)} GB/s near, ${(rate / 1e9).toFixed(0)} GB/s from memory, ${(r.call * 1e6).toFixed(2)} us for a small call. Bytes are those of arguments and results, each counted once. Large circles are where time is lost.`;
    table(el("points"), ["op and shapes", "calls", "time", "GFLOP/s", "GB/s", "of the limit", "lost"],
      r.points.map(p => [p[0], p[1], p[2], p[3] * p[1] / p[2] / 1e9, p[4] * p[1] / p[2] / 1e9, p[5], p[6]]),
      [null, n => n.toLocaleString("en"), v => ms(v * 1e9), v => v.toFixed(1), v => v.toFixed(1), percent, v => bar(v, r.points[0][6]) + ms(v * 1e9)], 6);
    const lx = v => (Math.log10(v) + 2) / 5 * wide, top = Math.log10(r.flops * 2), ly = v => high * (1 - (Math.log10(Math.max(v, 1e5)) - 5) / (top - 5));
    g.lineWidth = 2;
    for (const [speed, colour] of [[rate, "#2f6db3"], [near, "#9bbce0"]]) {
      g.strokeStyle = colour; g.beginPath();
      for (let e = -2; e <= 3; e += .05) { const i = 10 ** e; g.lineTo(lx(i), ly(Math.min(r.flops, speed * i))); }
      g.stroke();
    }
    g.fillStyle = "#5a6878"; g.font = "11px system-ui,sans-serif";
    for (let e = -2; e < 3; e++) g.fillText(`${10 ** e} operations a byte`, lx(10 ** e) + 3, high + 14);
    for (let e = 6; e < top; e++) g.fillText(`${e < 9 ? 10 ** (e - 6) + " MFLOP/s" : 10 ** (e - 9) + " GFLOP/s"}`, 3, ly(10 ** e) - 2);
    const boxes = r.points.map(p => [lx(p[3] / p[4]), ly(p[3] * p[1] / p[2]), 3 + 14 * Math.sqrt(p[6] / (r.points[0][6] || 1)), p]);
    boxes.forEach(([x, y, s, p]) => { g.fillStyle = hue(p[0].split(" ")[0]).replace(")", " / .75)"); g.beginPath(); g.arc(x, y, s, 0, 7); g.fill(); });
    const named = [];  // where names stand: no two on top of each other, and none twice side by side
    boxes.slice(0, 12).forEach(([x, y, s, p]) => {
      const name = p[0].split(" ")[0], w = g.measureText(name).width, at = x + s + w + 4 < wide ? x + s + 2 : x - s - w - 2;
      if (named.length === 8 || named.some(q => q[3] === name && Math.abs(q[0] - at) < 80)) return;
      let line = y + 4;
      for (let k = 1; k < 9 && named.some(q => at < q[1] && q[0] < at + w && Math.abs(q[2] - line) < 12); k++) line = y + 4 + (k % 2 ? 6 : -6) * (k + k % 2);
      named.push([at, at + w, line, name]); g.fillStyle = "#1d2733"; g.fillText(name, at, line);
    });
  },
};
el("title").textContent = data.title; document.title = data.title; el("facts").textContent = data.facts;
if (data.partial) el("partial").innerHTML = `<p class="partial">Partial: ${text(data.partial)}</p>`;
const tabs = Object.keys(views);
for (const name of tabs) { const b = document.createElement("button"); b.textContent = name; b.onclick = () => show(name); el("nav").append(b); }
const wantedView = typeof location === "object" && location.hash ? location.hash.slice(2) : data.first;
show(tabs.includes(wantedView) ? wantedView : data.advice.length ? "Advice" : "Ops");
