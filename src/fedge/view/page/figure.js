"use strict";
// A figure: a title, a drawing as wide as its place, values under the pointer or the arrow keys, and files to keep.
//
// What is to be drawn is a picture: { title, note, label, draw(width, paper) }, and `draw` returns { drawing, stops, read }:
//   stops     where there is something to read: [{ x, y }], in the order of the arrow keys; y only where it matters
//   read(n)   what is to be read there: { title, rows: [{ name, slot, text, x, y }], line }

const figures = new Map(); // by name: a figure stays the same element while its numbers change
const PAPER = 760; // width of a figure that is kept

function figure(name, picture) {
  let own = figures.get(name);
  if (!own) figures.set(name, (own = newFigure(name)));
  own.show(picture);
  return own.element;
}

function newFigure(name) {
  let picture = null, drawn = null, width = 0, stop = null;
  const heading = make("h3");
  const note = make("p", { class: "note" });
  const bubble = make("div", { class: "bubble", hidden: true });
  const spoken = make("p", { class: "unseen", "aria-live": "polite" });
  const plot = make("div", { class: "plot", tabindex: 0, role: "group", id: `plot-${name}`, "aria-roledescription": "figure" });
  const button = (kind, save) =>
    make("button", { type: "button", class: "quiet", "aria-label": `Save this figure as ${kind}`, click: () => save(name, picture) }, kind);
  const tools = make("span", { class: "tools" }, button("SVG", saveSvg), button("PNG", savePng));
  const element = make("figure", { class: "figure", "data-figure": name },
    make("figcaption", {}, heading, tools), make("div", { class: "frame" }, plot, bubble), note, spoken);

  const redraw = () => {
    if (!picture || !width) return;
    try {
      drawn = picture.draw(width, false);
    } catch (problem) { // numbers of a record that somebody has changed
      drawn = { drawing: svg("svg", { width, height: 30 }, svg("text", { y: 20, class: "soft" }, "These numbers cannot be drawn.")), stops: [] };
    }
    drawn.drawing.setAttribute("aria-hidden", "true");
    plot.replaceChildren(drawn.drawing);
    point(stop === null ? null : Math.min(stop, drawn.stops.length - 1), false);
  };

  function point(number, aloud) {
    stop = number !== null && number >= 0 && drawn?.stops.length ? number : null;
    plot.querySelector(".reading")?.remove();
    bubble.hidden = stop === null;
    if (stop === null) return;
    const found = drawn.read(stop), { x } = drawn.stops[stop];
    plot.firstChild.append(svg("g", { class: "reading" },
      found.line ? svg("line", { x1: x, x2: x, y1: found.line[0], y2: found.line[1] }) : null,
      found.rows.filter((row) => isNumber(row.y)).map((row) => svg("circle", { cx: row.x, cy: row.y, r: 4, class: `fill s${row.slot}` }))));
    const rows = found.rows.map((row) => make("li", {}, row.slot === undefined ? null : swatch(row.slot), make("span", {}, row.name),
      make("b", {}, row.text)));
    bubble.replaceChildren(make("p", {}, found.title), make("ul", {}, rows));
    const left = x + 14 + bubble.offsetWidth > width ? x - 14 - bubble.offsetWidth : x + 14;
    bubble.style.left = `${Math.max(0, Math.min(left, width - bubble.offsetWidth))}px`;
    bubble.style.top = `${Math.max(0, (drawn.stops[stop].y ?? 16) - 8)}px`;
    if (aloud) spoken.textContent = `${found.title}: ${found.rows.map((row) => `${row.name} ${row.text}`).join(", ")}`;
  }

  plot.addEventListener("pointermove", (event) => {
    if (!drawn?.stops.length) return;
    const box = plot.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const far = ({ x: a, y: b }) => (b === undefined ? Math.abs(a - x) : Math.hypot(a - x, b - y));
    point(drawn.stops.reduce((best, at, n) => (far(at) < far(drawn.stops[best]) ? n : best), 0), false);
  });
  plot.addEventListener("pointerleave", () => point(null, false));
  plot.addEventListener("blur", () => point(null, false));
  plot.addEventListener("keydown", (event) => {
    const end = (drawn?.stops.length ?? 0) - 1, now = stop ?? -1;
    const next = { ArrowRight: Math.min(now + 1, end), ArrowLeft: stop === null ? end : Math.max(now - 1, 0), Home: 0, End: end,
      Escape: null }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    point(next, true);
  });
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.round(contentRect.width) === width) return;
    width = Math.round(contentRect.width);
    redraw();
  }).observe(plot);

  const show = (given) => {
    picture = given;
    heading.textContent = picture.title;
    note.textContent = picture.note ?? "";
    note.hidden = !picture.note;
    plot.setAttribute("aria-label", `${picture.label ?? picture.title}. The arrow keys read its values.`);
    redraw();
  };
  return { element, show };
}

/** Return the sign that a series has in legends: its colour, dash and marker. */
function swatch(slot) {
  return svg("svg", { class: "swatch", width: 24, height: 12, viewBox: "0 0 24 12", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 23, y1: 6, y2: 6, class: `line s${slot}`, "stroke-dasharray": dash(slot) }), marker(slot, 12, 6, 3.5));
}

// A figure to keep: drawn anew as on paper, with every style written into it.

const WRITTEN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin",
  "stroke-linecap", "font-family", "font-size", "font-weight", "text-anchor", "paint-order"];

function onPaper(picture) {
  const { drawing } = picture.draw(PAPER, true);
  const sheet = make("div", { class: "paper" }, drawing);
  document.body.append(sheet);
  try {
    for (const element of drawing.querySelectorAll("*")) {
      const style = getComputedStyle(element);
      for (const name of WRITTEN) {
        const value = style.getPropertyValue(name);
        if (value && (/^(font|text|paint)/.test(name) ? element.tagName === "text" : true)) element.setAttribute(name, value);
      }
      for (const name of ["class", "style", "tabindex"]) element.removeAttribute(name);
    }
    const high = Number(drawing.getAttribute("height")), head = 34;
    const whole = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: PAPER, height: high + head, viewBox: `0 0 ${PAPER} ${high + head}` },
      svg("title", {}, picture.title), svg("rect", { width: PAPER, height: high + head, fill: "#ffffff" }),
      svg("text", { x: 0, y: 20, "font-family": "Helvetica, Arial, sans-serif", "font-size": 15, "font-weight": 600, fill: "#1b1d21" }, picture.title),
      svg("g", { transform: `translate(0 ${head})` }, ...drawing.childNodes));
    return { text: new XMLSerializer().serializeToString(whole), width: PAPER, height: high + head };
  } finally {
    sheet.remove();
  }
}

const fileOf = (name) => slug(`${page.name}-${name}`);

function saveSvg(name, picture) {
  keep(`${fileOf(name)}.svg`, new Blob([onPaper(picture).text], { type: "image/svg+xml" }));
}

function savePng(name, picture) {
  const { text, width, height } = onPaper(picture), image = new Image();
  image.onload = () => {
    const canvas = make("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => keep(`${fileOf(name)}.png`, blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
