"use strict";
// The page: what is on it, in which order, and what the reader has chosen to see.

let page = JSON.parse(document.getElementById("data").textContent);
const AXES = {
  round: { name: "Rounds", title: "global rounds", one: "round", kind: "number", whole: true },
  iteration: { name: "Iterations", title: "local iterations", one: "iteration", kind: "number", whole: true },
  simulated_seconds: { name: "Seconds", title: "simulated time", kind: "seconds" },
  bytes: { name: "Bytes", title: "sent on all tiers", kind: "bytes" },
};
const chosen = { x: "round", metric: null, logX: false, logY: false, seeds: false, run: null, hidden: new Set() };
const main = document.getElementById("page");

function choose(changes) {
  Object.assign(chosen, changes);
  render();
}

function render() {
  const focused = document.activeElement?.id;
  arrange(main, [header(), ...planned(), learning(), served(), costs(), closer(), keptData(), footer()]);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// Elements that stay while numbers change, so that neither focus nor an open menu is lost

/** Make these the children of an element; those that are there already are not touched. */
function arrange(parent, wanted) {
  const children = wanted.flat().filter(Boolean);
  for (const child of [...parent.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, n) => parent.children[n] !== child && parent.insertBefore(child, parent.children[n] ?? null));
  return parent;
}

const made = new Map();

/** Make an element again only when what it is made of has changed. */
function stable(name, parts, build) {
  const signature = JSON.stringify(parts);
  if (made.get(name)?.signature !== signature) made.set(name, { signature, element: build() });
  return made.get(name).element;
}

const box = (name, tag, attributes, ...children) => arrange(stable(name, null, () => make(tag, attributes)), children);

function section(name, title, ...children) {
  const heading = stable(`${name}-title`, title, () => make("h2", { id: `title-${name}` }, title));
  return box(name, "section", { "aria-labelledby": `title-${name}` }, heading, ...children);
}

/** Return what tables of all runs are made again for. */
const news = () => page.runs.map((run) => [run.label, run.state, run.rows, last(run.columns.round), run.reached, run.result]);

// Sections

function header() {
  const running = page.plan ? Number(page.plan.state === "running") : page.runs.filter((run) => run.state === "running").length;
  const what = { run: "run", comparison: `comparison of ${page.runs.length}`, sweep: `sweep of ${plural(page.runs.length, "run")}`, plan: "plan" }[page.kind] ?? plural(page.runs.length, "run");
  const parts = ["fedge", what, date(page.ended ?? page.begun), running ? `${page.runs.length > 1 && !page.plan ? `${running} ` : ""}running` : null].filter(Boolean);
  const told = [page.live ? home() : null, make("p", { class: "over" }, parts.join(" · "), page.live && running ? make("span", { class: "pulse", "aria-hidden": "true" }) : null),
    make("h1", {}, page.name), make("p", { class: "lead" }, page.says), page.command ? command(page.command) : null];
  const damaged = [page.plan, ...page.runs].filter((one) => one?.problem).map((one) => make("p", { class: "warning" }, one.problem));
  return stable("header", [parts, page.says, page.name, page.command, damaged.map((p) => p.textContent)], () => make("header", {}, told, damaged));
}

const home = () => make("p", { class: "home" }, make("a", { href: "/" }, "← all runs"));

function command(text, id = "copy") {
  const said = make("code", {}, text);
  const copy = navigator.clipboard && make("button", { type: "button", id, class: "quiet", click: (event) => {
    navigator.clipboard.writeText(text).then(() => (event.target.textContent = "copied"), () => getSelection().selectAllChildren(said));
  } }, "copy");
  return make("p", { class: "command" }, said, copy);
}

function learning() {
  if (page.plan && !page.metrics.length) return null;
  if (!page.metrics.length) return section("learning", "How it learned", stable("none", null, () => make("p", {}, "No round has been tested yet.")));
  const metric = page.metrics.find((one) => one.name === chosen.metric) ?? page.metrics[0];
  const others = page.metrics.filter((one) => one !== metric).map((one) => figure(`small-${one.name}`, curves(one, true)));
  return section("learning", page.plan ? "The finals, on fresh seeds" : page.runs.length > 1 ? "How they learned" : "How it learned",
    stable("results-table", news(), resultsTable),
    controls(metric), legend(), figure("curves", curves(metric, false)), box("multiples", "div", { class: "multiples" }, ...others));
}

function controls(metric) {
  const several = page.groups.some((group) => group.runs.length > 1);
  return stable("controls", [page.metrics.map((one) => one.name), metric.name, several, chosen.x, chosen.logX, chosen.logY, chosen.seeds], () => {
    const pick = make("select", { id: "metric", change: (event) => choose({ metric: event.target.value }) },
      page.metrics.map((one) => make("option", { value: one.name, selected: one === metric }, one.title)));
    const axis = Object.entries(AXES).map(([name, one]) => [make("input", { type: "radio", name: "axis", id: `axis-${name}`, checked: name === chosen.x,
      change: () => choose({ x: name }) }), make("label", { for: `axis-${name}` }, one.name)]);
    return make("div", { class: "controls" }, make("label", { class: "pick" }, make("span", {}, "Metric"), pick),
      make("fieldset", { class: "segments" }, make("legend", {}, "against"), make("div", {}, axis)),
      make("fieldset", { class: "segments" }, make("legend", {}, "scale"), make("div", {}, toggle("logX", "log x"), toggle("logY", "log y"), several ? toggle("seeds", "every seed") : null)));
  });
}

const toggle = (key, text) => [make("input", { type: "checkbox", id: key, checked: chosen[key], change: (event) => choose({ [key]: event.target.checked }) }), make("label", { for: key }, text)];

function legend() {
  if (page.groups.length < 2) return null;
  const names = page.groups.map((group) => group.name);
  return stable("legend", [names, [...chosen.hidden]], () => make("div", { class: "legend", role: "group", "aria-label": "Series: press to show or hide" },
    names.map((name, n) => make("button", { type: "button", id: `series-${n}`, "aria-pressed": String(!chosen.hidden.has(name)),
      click: () => choose({ hidden: new Set(chosen.hidden.has(name) ? [...chosen.hidden].filter((one) => one !== name) : [...chosen.hidden, name]) }) }, swatch(n), make("span", {}, name))),
    names.length > 3 ? make("button", { type: "button", id: "series-all", class: "quiet", click: () => choose({ hidden: new Set(chosen.hidden.size ? [] : names) }) }, chosen.hidden.size ? "show all" : "hide all") : null));
}

const visible = () => page.groups.map((group, slot) => ({ group, slot })).filter(({ group }) => !chosen.hidden.has(group.name));

/** Return the series of a metric: the mean over seeds with its interval where there is one, else each run. */
function curves(metric, small) {
  const series = visible().flatMap(({ group, slot }) => {
    const band = group.columns[metric.name];
    const each = runsOf(group).filter((run) => run.columns[metric.name])
      .map((run) => ({ name: group.runs.length > 1 ? `${group.name} seed ${run.seed}` : group.name, slot, x: run.columns[chosen.x], y: run.columns[metric.name], thin: group.runs.length > 1 }));
    if (!band || chosen.seeds) return each;
    return [{ name: group.name, slot, x: group.columns[chosen.x].mean, y: band.mean, low: band.low, high: band.high }];
  });
  const seeds = page.groups.some((group) => group.columns[metric.name]) && !chosen.seeds && !small;
  return linesPicture({ title: `${metric.title[0].toUpperCase()}${metric.title.slice(1)}`, series, x: AXES[chosen.x], y: { title: metric.title, kind: kindOf(metric) },
    logX: chosen.logX, logY: chosen.logY && !small, small, height: small ? 170 : innerWidth < 600 ? 270 : 380,
    note: seeds ? "Lines are means over seeds; bands are 95 % intervals of the mean." : null });
}

/** Show how the clients are served, from the worst to the best. */
function served() {
  const name = [...new Set(page.runs.flatMap((run) => Object.keys(run.lists).filter((key) => key.startsWith("client_"))))][0];
  if (!name) return null;
  const series = visible().flatMap(({ group, slot }) => runsOf(group).filter((run) => run.lists[name]).map((run) => {
    const y = run.lists[name].last.filter(isNumber).sort((a, b) => a - b);
    return { name: run.label, slot, x: y.map((_, n) => (y.length > 1 ? n / (y.length - 1) : 1)), y, thin: group.runs.length > 1 };
  }));
  const share = name.includes("accurac") || name.includes("f1"), metric = name.replace(/^client_/, "").replace(/ies$/, "y").replaceAll("_", " ");
  return section("served", "Who is served, and how well", figure("clients", linesPicture({ title: `Clients' ${metric}, from the worst served to the best`, series,
    x: { title: "share of clients", one: "share of clients", kind: "share" }, y: { title: metric, kind: share ? "share" : "number" }, height: 280,
    shade: { from: 0, to: 0.1, says: "worst tenth" }, note: "On each client's own training samples, by the last model that was tested." })));
}

function costs() {
  if (!page.metrics.length) return null;
  const flow = (group, tiers) => total(tiersOf(group).filter(({ tier }) => tiers.includes(tier)).map(({ value }) => value));
  const rows = visible().map(({ group }) => ({ name: group.name,
    parts: FLOWS.map(([name, tiers, slot]) => ({ name, slot, value: flow(group, tiers) })).filter((part) => part.value > 0) }));
  return section("costs", "What it cost", figure("traffic", barsPicture({ title: "Bytes sent, tier by tier", rows, kind: "bytes" })),
    stable("costs-table", news(), costsTable));
}

// One run, closer

function closer() {
  const known = page.runs.filter((run) => !run.problem || run.setting);
  const run = known.find((one) => one.label === chosen.run) ?? known[0];
  if (!run) return null;
  const parts = [...(run.setting ? closeUps(run) : []), ...configuration(run)];
  return section("closer", page.runs.length > 1 ? "One run, closer" : "Closer", picker(known, run), ...parts);
}

function picker(known, run) {
  if (known.length < 2) return null;
  return stable("picker", [known.map((one) => one.label), run.label], () => {
    if (known.length > 6) {
      return make("div", { class: "controls" }, make("label", { class: "pick" }, make("span", {}, "Run"), make("select", { id: "run", change: (event) => choose({ run: event.target.value }) },
        known.map((one) => make("option", { value: one.label, selected: one === run }, one.label)))));
    }
    const each = known.map((one, n) => [make("input", { type: "radio", name: "run", id: `run-${n}`, checked: one === run, change: () => choose({ run: one.label }) }), make("label", { for: `run-${n}` }, one.label)]);
    return make("div", { class: "controls" }, make("fieldset", { class: "segments" }, make("legend", {}, "run"), make("div", {}, each)));
  });
}

/** Return what there is to see of a run besides its curves; a part whose numbers are damaged is left out. */
function closeUps(run) {
  const { setting } = run, whole = (build) => { try { return build(); } catch { return null; } };
  return [
    whole(() => figure("network", networkPicture(run))),
    box("links", "div", { class: "beside" }, ...[whole(() => run.traffic && trafficTable(run)), whole(() => waitsTable(run))]),
    whole(() => setting.labels && figure("labels", labelsPicture(setting.labels, setting.topology.cells))),
    ...Object.entries(run.lists).filter(([, list]) => list.each).map(([name, list]) => whole(() => figure(name, eachPicture(run, name, list)))),
    whole(() => run.columns.consensus && figure("consensus", consensusPicture(run))),
    whole(() => shrunk(setting.held) && figure("submodels", submodelsPicture(run))),
    ...(setting.cut ? [whole(() => figure("cut", cutPicture(setting.cut))), whole(() => cutFacts(setting.cut))] : []),
  ].flat().filter(Boolean);
}

function eachPicture(run, name, list) {
  const what = name.startsWith("edge_") ? "edge" : "cell", metric = name.replace(/^(edge|cell)_/, "").replace(/ies$/, "y").replaceAll("_", " ");
  const series = range(list.count).map((n) => ({ name: `${what} ${n}`, slot: n, x: run.columns[chosen.x], y: list.each.map((row) => row?.[n] ?? null), thin: list.count > 10 }));
  const where = what === "edge" ? "Each edge's own model, on the test set." : "On the training samples of each cell's clients.";
  return linesPicture({ title: `Each ${what}'s ${metric}`, series, x: AXES[chosen.x], y: { title: metric, kind: /accurac|f1/.test(name) ? "share" : "number" }, logX: chosen.logX, height: 260, note: where });
}

function consensusPicture(run) {
  return linesPicture({ title: "How far the edges are from agreeing", series: [{ name: "distance", slot: 0, x: run.columns[chosen.x], y: run.columns.consensus }], x: AXES[chosen.x],
    y: { title: "squared distance", kind: "number" }, logX: chosen.logX, logY: true, height: 220, note: `Σ m̃ ‖w − u‖²: the weighted squared distance of the edges' models from their mean, on a logarithmic axis.${
      run.setting.graph ? ` The graph's ζ is ${plain(run.setting.graph.zeta)}, with ${plural(run.setting.graph.exchanges, "gossip step")} in each exchange.` : ""}` });
}

const shrunk = (held) => held?.each_edge && held.client.most < held.model && held.edge.most < held.model;

function submodelsPicture(run) {
  const { held } = run.setting;
  return barsPicture({ title: "The submodels", kind: "bytes", legend: false, mark: { value: held.model, says: `the whole model: ${bytes(held.model)}` },
    rows: held.each_edge.slice(0, DRAWN).map((size, n) => ({ name: `cell ${n}`, parts: [{ name: "of the model", value: size, slot: 0 }] })),
    note: `What each cell holds in the first round${held.changes ? "; every round cuts the model anew" : ""}.` });
}

function cutPicture(cut) {
  const rows = [["client's half", true], ["edge's half", false]].map(([name, mine]) => ({ name,
    parts: cut.stages.filter((stage) => stage.on_client === mine).map((stage) => ({ name: stage.name, value: stage.parameters, slot: cut.stages.indexOf(stage) })) }));
  return barsPicture({ title: "Where the model is cut", note: "Parameters of each stage, on either side of the cut.", kind: "number", rows });
}

const cutFacts = (cut) => facts([
  ["client's half", `${plural(cut.client_parameters, "parameter")}, ${percent(cut.client_work)} of the work`], ["edge's half", `${plural(cut.edge_parameters, "parameter")}; ${cut.sharing}`],
  ["crosses the cut, each client and iteration", `${bytes(cut.activation_bytes)} of activations and ${bytes(cut.label_bytes)} of labels up, ${bytes(cut.gradient_bytes)} of gradients down`],
]);

function configuration(run) {
  const parts = [make("h3", { class: "of-table" }, "Configuration"), page.differing.some((key) => !["algorithm", "seed"].includes(key)) ? differingTable() : null,
    run.changed.length ? changedTable(run) : make("p", {}, "Every key has its default."), everyKey(run), make("h3", { class: "of-table" }, "Made with"), madeWith(run)];
  return [stable("configuration", [run.label, run.config, run.made_with, run.begun, run.ended, page.groups.length], () => make("div", { class: "configuration" }, parts))];
}

// Data to keep

function keptData() {
  return stable("data-section", [page.plan?.csv, page.runs.length > 0], () => make("section", { "aria-labelledby": "title-data" }, make("h2", { id: "title-data" }, "Take it with you"),
    make("p", {}, "Each figure has buttons that save it as SVG and as PNG. These are the numbers behind them."),
    make("p", { class: "buttons" }, planData(), page.runs.length > 0 && [make("button", { type: "button", id: "save-rows", click: () => keep(`${slug(page.name)}.csv`, new Blob([csv(rowsTable())], { type: "text/csv" })) }, "Every round, CSV"),
      make("button", { type: "button", id: "save-links", click: () => keep(`${slug(page.name)}-links.csv`, new Blob([csv(linksTable())], { type: "text/csv" })) }, "Traffic of links, CSV")])));
}

function rowsTable() {
  const columns = [...new Set(page.runs.flatMap((run) => Object.keys(run.columns)))], tiers = [...new Set(page.runs.flatMap((run) => Object.keys(run.tiers)))];
  const lists = [...new Set(page.runs.flatMap((run) => Object.entries(run.lists).filter(([, l]) => l.each).flatMap(([name, l]) => range(l.count).map((n) => `${name}_${n}`))))];
  const rows = page.runs.flatMap((run) => (run.columns.round ?? []).map((_, n) => [run.name, run.algorithm, run.seed, ...columns.map((name) => run.columns[name]?.[n]),
    ...tiers.map((tier) => run.tiers[tier]?.[n]), ...lists.map((name) => { const at = name.lastIndexOf("_"); return run.lists[name.slice(0, at)]?.each?.[n]?.[Number(name.slice(at + 1))]; })]));
  return [["run", "algorithm", "seed", ...columns, ...tiers.map((tier) => `bytes_${tier}`), ...lists], ...rows];
}

function linksTable() {
  const rows = page.runs.flatMap((run) => Object.entries(run.traffic ?? {}).flatMap(([tier, found]) =>
    (found.each ?? []).map((sent, n) => [run.name, tier, found.pairs?.[n] ? `${found.pairs[n][0]} to ${found.pairs[n][1]}` : n, sent, run.counted])));
  return [["run", "tier", "link", "bytes", "up_to_round"], ...rows];
}

const footer = () => stable("footer", null, () => make("footer", {}, "Made by fedge from the record in this folder. Nothing on this page asks for anything from elsewhere."));

// A page that follows a run that is still going on

render();
if (page.live) {
  const stream = new EventSource(page.live);
  stream.addEventListener("page", (event) => {
    page = { ...JSON.parse(event.data), live: page.live };
    render();
  });
}
