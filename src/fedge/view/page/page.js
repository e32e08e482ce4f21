"use strict";
const page = JSON.parse(document.getElementById("data").textContent);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const last = (values) => (values && values.length ? values[values.length - 1] : null);
const head = make("tr", {}, ...["run", "state", ...page.metrics.map((m) => m.title)].map((t) => make("th", {}, t)));
const rows = page.runs.map((run) => make("tr", {}, make("td", {}, run.label), make("td", {}, run.state),
  ...page.metrics.map((m) => make("td", {}, String(last(run.columns[m.name]) ?? "–")))));
document.getElementById("page").append(
  make("h1", {}, page.name), make("p", {}, page.says), make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
