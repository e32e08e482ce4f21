"use strict";
// The list of runs that the board shows, and what the reader picks from it.

const board = JSON.parse(document.getElementById("data").textContent);
const runs = new Map(board.rows.map((row) => [row.name, row]));
const picked = new Set();
const seen = { words: "", order: "newest" };
const lines = new Map(); // by name: what stands in the table of a run, made again when it has changed

const address = (names) => `/page?${names.map((name) => `of=${encodeURIComponent(name)}`).join("&")}`;
const folders = () => plural(runs.size, "run");

function sparkline(row) {
  const points = row.spark.map((value, n) => ({ n, value })).filter(({ value }) => isNumber(value));
  if (points.length < 2) return null;
  const [low, high] = [least(points.map((p) => p.value)), most(points.map((p) => p.value))];
  const at = (p) => `${((p.n / (row.spark.length - 1)) * 90 + 3).toFixed(1)} ${(21 - ((p.value - low) / (high - low || 1)) * 18).toFixed(1)}`;
  return svg("svg", { width: 96, height: 24, class: "spark", "aria-hidden": "true" }, svg("path", { d: `M${points.map(at).join("L")}`, class: "line small s0" }),
    svg("circle", { cx: at(last(points)).split(" ")[0], cy: at(last(points)).split(" ")[1], r: 2.5, class: "fill s0" }));
}

function amount(row) {
  if (!isNumber(row.value)) return row.round === null ? "–" : "not a number";
  return row.share ? percent(row.value) : even(row.value);
}

function line(row) {
  const signature = JSON.stringify(row), known = lines.get(row.name);
  if (known?.signature === signature) return known.element;
  const tick = make("input", { type: "checkbox", "aria-label": `Pick ${row.name}`, checked: picked.has(row.name), change: (event) => {
    picked[event.target.checked ? "add" : "delete"](row.name);
    showPicked();
  } });
  const inside = row.study && row.name.startsWith(`${row.study}/`) ? row.name.slice(row.study.length + 1) : row.name;
  const name = [row.study && inside !== row.name ? [make("a", { class: "study", href: address([row.study]) }, row.study), " / "] : null,
    make("a", { href: address([row.name]) }, inside)];
  const rounds = row.round === null ? "–" : row.rounds && row.rounds !== row.round ? `${row.round} of ${row.rounds}` : String(row.round);
  const state = make("span", { class: `state ${row.state}` }, row.state, row.state === "running" ? make("span", { class: "pulse", "aria-hidden": "true" }) : null);
  const element = make("tr", { "data-run": row.name }, make("td", { class: "tick" }, tick), make("th", { scope: "row" }, name), make("td", {}, state),
    row.problem ? make("td", { colspan: 5, class: "problem" }, row.problem)
      : [make("td", {}, row.algorithm), make("td", { class: "differs" }, row.differs.join(" · ") || "as by default"), make("td", { class: "number" }, make("b", {}, amount(row)),
        row.metric && row.metric !== "accuracy" && isNumber(row.value) ? ` ${row.metric}` : null), make("td", { class: "curve" }, sparkline(row)), make("td", { class: "number" }, rounds)],
    make("td", { class: "number when" }, row.begun ? row.begun.slice(0, 16).replace("T", " ") : "–"));
  lines.set(row.name, { signature, element });
  return element;
}

const ORDERS = {
  newest: (a, b) => (b.begun ?? "").localeCompare(a.begun ?? ""),
  highest: (a, b) => (isNumber(b.value) ? b.value : -Infinity) - (isNumber(a.value) ? a.value : -Infinity) || 0,
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
};

/** Show what is asked for; at first only as much as a window has room for. */
function show(most = Infinity) {
  const asked = seen.words.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = [...runs.values()].filter((row) => asked.every((word) => `${row.name} ${row.state} ${row.algorithm} ${row.differs.join(" ")}`.toLowerCase().includes(word)));
  const wanted = shown.sort(ORDERS[seen.order]).slice(0, most).map(line);
  if (wanted.length !== body.children.length || wanted.some((element, n) => element !== body.children[n])) {
    const focused = document.activeElement;
    body.replaceChildren(...wanted);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }
  count.textContent = shown.length === runs.size ? folders() : `${shown.length.toLocaleString("en")} of ${folders()}`;
  empty.hidden = runs.size > 0;
}

function showPicked() {
  const names = [...picked].filter((name) => runs.has(name));
  overlay.hidden = names.length === 0;
  overlay.textContent = names.length > 1 ? `Lay ${names.length} over one another` : "Open it";
  overlay.href = address(names);
}

const body = make("tbody");
const count = make("p", { class: "over", role: "status" });
const empty = make("p", {}, "No run lies in this folder yet. As soon as one begins, it is listed here.");
const overlay = make("a", { class: "button", id: "overlay", hidden: true, href: "#" });
const find = make("input", { type: "search", id: "find", placeholder: "Find: hist lr=0.1 finished", "aria-label": "Find runs", input: (event) => { seen.words = event.target.value; show(); } });
const order = Object.keys(ORDERS).map((name) => [make("input", { type: "radio", name: "order", id: `order-${name}`, checked: name === seen.order,
  change: () => { seen.order = name; show(); } }), make("label", { for: `order-${name}` }, name)]);
const heads = ["", "run", "state", "algorithm", "what differs from the defaults", "last", "", "rounds", "begun (UTC)"];
document.getElementById("page").append(
  make("header", {}, make("p", { class: "over" }, "fedge board"), make("h1", {}, board.name)),
  make("div", { class: "controls" }, find, make("fieldset", { class: "segments" }, make("legend", {}, "order"), make("div", {}, order)), overlay), count, empty,
  make("div", { class: "scroll" }, make("table", { class: "runs" }, make("thead", {}, make("tr", {}, heads.map((title, n) =>
    make("th", { scope: "col", class: n === 5 || n > 6 ? "number" : null }, title)))), body)));
show(60);
requestAnimationFrame(() => setTimeout(() => {
  show();
  new EventSource("/events").addEventListener("rows", (event) => {
    const { rows, gone } = JSON.parse(event.data);
    for (const name of gone) runs.delete(name);
    for (const row of rows) runs.set(row.name, row);
    show();
    showPicked();
  });
}));
