"use strict";
// Lines over an axis, with bands, markers and names at their ends.
//
// A series is { name, slot, x, y, low, high, thin }; a null is a gap.

const COLOURS = 8, DASHES = [null, "7 3", "2 3", "8 3 2 3"];
const dash = (slot) => DASHES[Math.floor(slot / COLOURS) % DASHES.length];
const colour = (slot) => `s${slot % COLOURS}`;
const MARKS = 9; // markers on a line

/** Return the marker of a series: colours alone are not told apart by everybody. */
function marker(slot, x, y, r) {
  const shape = [
    () => svg("circle", { cx: x, cy: y, r }),
    () => svg("rect", { x: x - r * 0.9, y: y - r * 0.9, width: 1.8 * r, height: 1.8 * r }),
    () => svg("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + 0.85 * r}H${x - 1.15 * r}Z` }),
    () => svg("path", { d: `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}Z` }),
    () => svg("path", { d: `M${x} ${y + 1.2 * r}L${x + 1.15 * r} ${y - 0.85 * r}H${x - 1.15 * r}Z` }),
  ][slot % 5]();
  return complete(shape, { class: `mark ${colour(slot)}` }, []);
}

/** Return the picture of lines; `keys` stand for them in a legend of few words. `x` and `y` are { title, kind, whole }, kind being share, bytes, seconds or number. */
function linesPicture({ title, note, series, x, y, logX = false, logY = false, height = 300, small = false, shade = null, keys = null }) {
  const shown = series.map((one) => drawable(one, logX, logY)).filter((one) => one.points.length);
  const draw = (width, paper) => drawLines({ shown, keys: keys ?? shown, x, y, logX, logY, small, shade, width, paper, height: paper ? 380 : height });
  return { title, note, draw, label: `${title}: ${y.title} against ${x.title}` };
}

function drawable(one, logX, logY) {
  const fits = (a, b) => isNumber(a) && isNumber(b) && !(logX && a <= 0) && !(logY && b <= 0);
  const points = range(one.x.length).filter((n) => fits(one.x[n], one.y[n]))
    .map((n) => ({ n, x: one.x[n], y: one.y[n], low: one.low?.[n], high: one.high?.[n] }));
  return { ...one, points };
}

function drawLines({ shown, keys, x, y, logX, logY, small, shade, width, paper, height }) {
  const named = !small && shown.length > 1 && shown.length <= 10 && width >= 560 && !shown.some((one) => one.thin);
  const legend = paper && !named && shown.length > 1 ? legendRows(keys, width) : 0;
  const wide = named ? Math.min(190, 24 + 6.4 * most(shown.map((one) => one.name.length))) : 12;
  const box = { left: 54, right: width - wide, top: 10, bottom: height - (small ? 24 : 42) };
  const drawing = svg("svg", { width, height: height + legend * 18 });
  if (!shown.length) {
    drawing.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "soft" }, "nothing to draw yet"));
    return { drawing, stops: [], read: () => null };
  }
  const across = scale(...extent(shown, "x", logX), box.left, box.right, { log: logX, whole: x.whole, room: small ? 56 : 84 });
  const up = scale(...extent(shown, "y", logY), box.bottom, box.top,
    { log: logY, room: small ? 34 : 46, nice: true, top: y.kind === "share" ? 1 : Infinity });
  drawing.append(...axes(across, up, x, y, box, small));
  const clip = `clip-${(drawLines.count = (drawLines.count ?? 0) + 1)}`;
  drawing.append(svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top - 4, width: box.right - box.left + 4, height: box.bottom - box.top + 8 })));
  if (shade) drawing.append(...shaded(shade, across, box));
  const inside = svg("g", { "clip-path": `url(#${clip})` });
  drawing.append(inside);
  for (const one of shown) inside.append(band(one, across, up, logY));
  for (const one of shown) inside.append(path(one, across, up, small));
  if (!small) for (const one of shown.filter((each) => !each.thin)) inside.append(...marks(one, across, up));
  if (named) drawing.append(...names(shown, up, box));
  if (legend) drawing.append(...legendBelow(keys, width, height));
  return { drawing, ...reading(shown, across, up, x, y, box) };
}

/** Return the ends of an axis: of the lines, and of bands as far as they do not flatten the lines. */
function extent(shown, key, log) {
  const values = shown.flatMap((one) => one.points.map((point) => point[key]));
  let [low, high] = [least(values), most(values)];
  if (key === "y") {
    const ends = shown.flatMap((one) => one.points.flatMap((p) => [p.low, p.high])).filter((v) => isNumber(v) && !(log && v <= 0));
    const reach = 0.6 * (high - low) || Math.abs(high) * 0.1;
    if (ends.length) [low, high] = [log ? low : Math.max(least([low, ...ends]), low - reach), log ? high : Math.min(most([high, ...ends]), high + reach)];
  }
  if (low === high) return log ? [low / 2, high * 2] : key === "x" ? [Math.min(0, low), high || 1] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  return [low, high];
}

function axes(across, up, x, y, box, small) {
  const write = { x: writing(x.kind, across.high, across.step, across.log), y: writing(y.kind, up.high, up.step, up.log) };
  const lines = up.ticks.map((value) => svg("g", {},
    svg("line", { x1: box.left, x2: box.right, y1: up.place(value), y2: up.place(value), class: "grid" }),
    svg("text", { x: box.left - 8, y: up.place(value) + 4, "text-anchor": "end" }, write.y.tick(value))));
  const below = across.ticks.map((value) => svg("g", {},
    svg("line", { x1: across.place(value), x2: across.place(value), y1: box.bottom, y2: box.bottom + 4, class: "tick" }),
    svg("text", { x: across.place(value), y: box.bottom + 17, "text-anchor": "middle" }, write.x.tick(value))));
  const base = svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "base" });
  const title = small ? null : svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 37, "text-anchor": "middle", class: "soft" }, `${x.title}${write.x.unit}`);
  return [...lines, base, ...below, title].filter(Boolean);
}

function shaded({ from, to, says }, across, box) {
  const [left, right] = [from, to].map((value) => Math.max(box.left, Math.min(box.right, across.place(value))));
  return [svg("rect", { x: left, y: box.top, width: right - left, height: box.bottom - box.top, class: "shade" }),
    svg("text", { x: right + 6, y: box.bottom - 8, class: "soft" }, says)];
}

function band(one, across, up, log) {
  const points = one.points.filter((p) => isNumber(p.low) && isNumber(p.high));
  if (points.length < 2) return svg("g");
  const floor = log ? up.low : -Infinity;
  const edge = (key) => points.map((p) => `${across.place(p.x).toFixed(1)} ${up.place(Math.max(p[key], floor)).toFixed(1)}`);
  return svg("path", { d: `M${edge("high").join("L")}L${edge("low").reverse().join("L")}Z`, class: `band ${colour(one.slot)}` });
}

function path(one, across, up, small) {
  let d = "", before = null;
  for (const p of one.points) {
    d += `${before === null || p.n !== before + 1 ? "M" : "L"}${across.place(p.x).toFixed(1)} ${up.place(p.y).toFixed(1)}`;
    before = p.n;
  }
  const line = svg("path", { d, class: `line ${colour(one.slot)}${one.thin ? " thin" : ""}${small ? " small" : ""}`, "stroke-dasharray": dash(one.slot), "data-series": one.name });
  if (one.points.length > 1) return line;
  return svg("g", { "data-series": one.name }, marker(one.slot, across.place(one.points[0].x), up.place(one.points[0].y), 3.5));
}

/** Place a few markers along a line, each series a little further on than the one before, so that they do not cover each other. */
function marks(one, across, up) {
  const every = Math.max(1, Math.ceil(one.points.length / MARKS));
  return one.points.filter((_, n) => (one.points.length - 1 - n + Math.floor((one.slot * every) / 5)) % every === 0)
    .map((p) => marker(one.slot, across.place(p.x), up.place(p.y), 3.5));
}

/** Write each series' name at its end, moved apart where two would cover each other. */
function names(shown, up, box) {
  const ends = shown.map((one) => ({ one, y: up.place(last(one.points).y) })).sort((a, b) => a.y - b.y);
  const room = 16;
  for (let n = 1; n < ends.length; n += 1) ends[n].y = Math.max(ends[n].y, ends[n - 1].y + room);
  if (ends.length) last(ends).y = Math.min(last(ends).y, box.bottom);
  for (let n = ends.length - 2; n >= 0; n -= 1) ends[n].y = Math.min(ends[n].y, ends[n + 1].y - room);
  return ends.map(({ one, y }) => svg("g", {}, marker(one.slot, box.right + 12, y, 3.2),
    svg("text", { x: box.right + 22, y: y + 4 }, cut(one.name, 26))));
}

const cut = (text, count) => (text.length > count ? `${text.slice(0, count - 1)}…` : text);

const legendWidth = (shown) => Math.min(360, 44 + 6.6 * most(shown.map((one) => one.name.length)));
const legendRows = (shown, width) => Math.ceil(shown.length / Math.max(1, Math.floor((width - 54) / legendWidth(shown))));

function legendBelow(shown, width, height) {
  const each = legendWidth(shown), columns = Math.max(1, Math.floor((width - 54) / each));
  return shown.map((one, n) => {
    const x = 54 + (n % columns) * each, y = height + Math.floor(n / columns) * 18 + 8;
    return svg("g", {}, svg("line", { x1: x, x2: x + 22, y1: y, y2: y, class: `line ${colour(one.slot)}`, "stroke-dasharray": dash(one.slot) }),
      marker(one.slot, x + 11, y, 3.5), svg("text", { x: x + 30, y: y + 4 }, cut(one.name, 50)));
  });
}

/** Say what is to be read at each place of the axis: of every series, the last point up to there. */
function reading(shown, across, up, x, y, box) {
  const values = [...new Set(shown.flatMap((one) => one.points.map((p) => p.x)))].sort((a, b) => a - b);
  const read = (number) => {
    const rows = shown.map((one) => {
      const p = one.points.findLast((each) => each.x <= values[number]);
      if (!p) return { name: one.name, slot: one.slot, text: "–", value: null };
      const spread = isNumber(p.low) && isNumber(p.high) ? ` ± ${alone[y.kind]((p.high - p.low) / 2)}` : "";
      return { name: one.name, slot: one.slot, text: alone[y.kind](p.y) + spread, value: p.y, x: across.place(p.x), y: up.place(p.y) };
    });
    rows.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    const left = rows.length - 12;
    const few = left > 1 ? [...rows.slice(0, 12), { name: `and ${left} more`, text: "" }] : rows;
    const title = x.kind === "number" ? `${x.one ?? x.title} ${plain(values[number])}` : `${x.title}: ${alone[x.kind](values[number])}`;
    return { title, rows: few, line: [box.top, box.bottom] };
  };
  return { stops: values.map((value) => ({ x: across.place(value) })), read };
}
