"use strict";
// Tables: results, costs, who waited, configuration, and what a run was made with.

/** Make a table; a column is { title, text, number, wide } with `text` from a row to what stands there. */
function table(rows, columns, caption = null) {
  const head = columns.map((column) => make("th", { scope: "col", class: column.number ? "number" : null }, column.title));
  const body = rows.map((row) => make("tr", {}, columns.map((column, n) => {
    const found = column.text(row), side = column.number ? "number" : column.wide ? "wide" : null;
    return n ? make("td", { class: side }, found) : make("th", { scope: "row" }, found);
  })));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    make("table", {}, caption ? make("caption", { class: "unseen" }, caption) : null, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}

/** Return pairs of a name and what it is. */
function facts(pairs) {
  return make("dl", {}, pairs.filter(([, said]) => said !== null && said !== undefined && said !== "")
    .map(([name, said]) => make("div", {}, make("dt", {}, name), make("dd", {}, said))));
}

// Results and costs: a row for each group of runs that differ in their seed only

const runsOf = (group) => group.runs.map((n) => page.runs[n]);
const mean = (values) => (values.length && values.every(isNumber) ? total(values) / values.length : null);
const meanOf = (group, pick) => mean(runsOf(group).map(pick));
const written = (value, how) => (isNumber(value) ? how(value) : "–");
const kindOf = (metric) => (metric.share ? "share" : "number");

function finalText(group, metric) {
  const band = group.columns[metric.name], how = alone[kindOf(metric)];
  const together = new Set(runsOf(group).map((run) => last(run.columns.round))).size === 1; // else they ended at a target
  if (!band || !together) return written(meanOf(group, (run) => last(run.columns[metric.name])), how);
  const [middle, high] = [last(band.mean), last(band.high)];
  return isNumber(middle) && isNumber(high) ? `${how(middle)} ± ${how(high - middle)}` : written(middle, how);
}

function best(run, metric) {
  const values = (run.columns[metric.name] ?? []).filter(isNumber);
  if (!values.length) return "–";
  const top = (metric.falls ? least : most)(values);
  return `${alone[kindOf(metric)](top)} (round ${run.columns.round[run.columns[metric.name].indexOf(top)]})`;
}

function stateText(group) {
  const states = runsOf(group).map((run) => run.state);
  return [...new Set(states)].map((state) => (states.length > 1 ? `${states.filter((s) => s === state).length} ${state}` : state)).join(", ");
}

function roundsText(group) {
  const done = [...new Set(runsOf(group).map((run) => last(run.columns.round) ?? 0))].sort((a, b) => a - b);
  const asked = runsOf(group)[0].rounds, range = done.length > 1 ? `${done[0]}–${last(done)}` : String(done[0]);
  return isNumber(asked) && asked !== done[0] ? `${range} of ${asked}` : range;
}

function nameOf(group, n) {
  return make("span", { class: "named" }, page.groups.length > 1 ? swatch(n) : null, group.name);
}

function resultsTable() {
  const seeds = page.groups.some((group) => group.runs.length > 1), [main] = page.metrics;
  const rest = page.metrics.filter((metric) => metric !== main && ["loss", "worst_tenth_accuracy"].includes(metric.name));
  const target = page.runs.some((run) => run.reached);
  const columns = [
    { title: seeds ? "setting" : "run", text: (group) => nameOf(group, page.groups.indexOf(group)) },
    seeds && { title: "seeds", text: (group) => group.runs.length, number: true },
    page.runs.some((run) => run.state !== "finished") && { title: "state", text: stateText },
    main && { title: `final ${main.title}${seeds ? " (95 %)" : ""}`, text: (group) => make("b", {}, finalText(group, main)), number: true },
    main && !seeds && { title: `best ${main.title}`, text: (group) => best(runsOf(group)[0], main), number: true },
    ...rest.map((metric) => ({ title: metric.title, text: (group) => finalText(group, metric), number: true })),
    { title: "rounds", text: roundsText, number: true },
    target && { title: "target reached", text: (group) => runsOf(group).map((run) => (run.reached ? `round ${run.reached.round}` : "no")).join(", "), number: true },
    { title: "simulated", text: (group) => written(meanOf(group, (run) => last(run.columns.simulated_seconds)), seconds), number: true },
    { title: "sent", text: (group) => written(meanOf(group, (run) => last(run.columns.bytes)), bytes), number: true },
  ];
  return table(page.groups, columns.filter(Boolean), "Results");
}

function tiersOf(group) {
  const names = [...new Set(runsOf(group).flatMap((run) => Object.keys(run.tiers)))];
  return names.map((tier) => ({ tier, value: meanOf(group, (run) => last(run.tiers[tier]) ?? 0) ?? 0 }));
}

/** Lay costs out with a line for each of them and a column for each run; the other way round where there are many runs. */
function costsTable() {
  const tiers = Object.keys(TIERS).filter((tier) => page.groups.some((group) => tiersOf(group).some((one) => one.tier === tier)));
  const costs = [
    ...tiers.map((tier) => ({ title: tierName(tier), text: (group) => written(tiersOf(group).find((one) => one.tier === tier)?.value, bytes), number: true })),
    { title: "all tiers", text: (group) => make("b", {}, written(meanOf(group, (run) => last(run.columns.bytes)), bytes)), number: true },
    { title: "simulated time", text: (group) => make("b", {}, written(meanOf(group, (run) => last(run.columns.simulated_seconds)), seconds)), number: true },
    { title: "wall clock", text: (group) => written(meanOf(group, (run) => run.result.wall_seconds), seconds), number: true },
    { title: "of it compiling", text: (group) => written(meanOf(group, (run) => run.result.compile_seconds), seconds), number: true },
    { title: "client steps/s", text: (group) => written(meanOf(group, (run) => run.result.client_steps_per_second), (v) => Math.round(v).toLocaleString("en")), number: true },
  ];
  if (page.groups.length > 6) return table(page.groups, [{ title: "run", text: (group) => nameOf(group, page.groups.indexOf(group)) }, ...costs], "Costs");
  return table(costs, [{ title: "", text: (cost) => cost.title }, ...page.groups.map((group) => ({ title: group.name, text: (cost) => cost.text(group), number: true }))], "Costs");
}

/** Say up to which round links and waits were counted, where the other numbers are of another one. */
const upTo = (run) => (isNumber(run.counted) && run.counted !== last(run.columns.round) ? ` up to round ${run.counted}` : "");

function trafficTable(run) {
  const rows = Object.entries(run.traffic), column = (title, key) => ({ title, text: ([, found]) => bytes(found[key]), number: true });
  return table(rows, [
    { title: "tier", text: ([tier]) => tierName(tier) }, { title: "links", text: ([, found]) => found.links.toLocaleString("en"), number: true },
    column("all links", "total"), column("least", "least"), column("middle", "middle"), column("most", "most"),
  ], `Traffic of ${run.label}${upTo(run)}`);
}

/** Say for each cell whom it waited for, and how long the others did. */
function waitsTable(run) {
  const { each_client: clients, each_edge: edges } = run.waiting ?? {}, owner = run.setting.topology.each_client?.cell;
  if (!clients || !owner || !edges || run.setting.topology.cells > DRAWN || most([...clients.waits, ...edges.waits]) === 0) return null;
  const cellsTold = most(clients.last) > 0 || most(edges.last) > 0 || most(edges.waits) > 0;
  if (!cellsTold) return null;
  const group = run.setting.exchange === "direct" ? "all clients" : null; // no edge is between them and the cloud
  const rows = range(group ? 1 : run.setting.topology.cells).map((cell) => {
    const own = range(owner.length).filter((n) => group || owner[n] === cell);
    return { cell, own, slow: own.reduce((a, b) => (clients.last[b] > clients.last[a] ? b : a), own[0]) };
  });
  return table(rows, [
    { title: group ? "" : "cell", text: ({ cell }) => group ?? cell },
    { title: "waited most for", text: ({ slow }) => (slow !== undefined && clients.last[slow] ? `client ${slow}, ${clients.last[slow]} times` : "nobody"), number: true },
    { title: "a client waited", text: ({ own }) => written(mean(own.map((n) => clients.waits[n])), seconds), number: true },
    !group && { title: run.setting.exchange === "gossip" ? "its edge waited for neighbours" : "its edge waited for others", text: ({ cell }) => seconds(edges.waits[cell]), number: true },
    !group && run.setting.exchange !== "gossip" && { title: "the cloud waited for it", text: ({ cell }) => (edges.last[cell] ? `${edges.last[cell]} times` : "never"), number: true },
  ].filter(Boolean), `Who waited for whom in ${run.label}${upTo(run)}`);
}

// Configuration

function differingTable() {
  const rows = page.groups.length > 60 ? page.groups.slice(0, 60) : page.groups;
  const set = new Set(page.runs.flatMap((run) => run.changed.map((change) => change.key)));
  const keys = page.differing.filter((key) => key === "algorithm" || set.has(key) || key === "seed");
  const value = (group, key) => [...new Set(runsOf(group).map((run) => word(run.apart[key])))].join(", ");
  return table(rows, [{ title: "run", text: (group) => nameOf(group, page.groups.indexOf(group)) },
    ...keys.map((key) => ({ title: key, text: (group) => value(group, key) }))], "Where the runs differ");
}

function changedTable(run) {
  return table(run.changed, [{ title: "key", text: ({ key }) => make("code", {}, key) }, { title: "here", text: ({ value }) => make("b", {}, word(value)) },
    { title: "by default", text: (change) => word(change.default) }], `What differs from the defaults in ${run.label}`);
}

function everyKey(run) {
  const changed = new Set(run.changed.map(({ key }) => key));
  const rows = Object.entries(run.config).filter(([key, value]) => !changed.has(key) && value !== null);
  return make("details", {}, make("summary", { id: "every-key" }, `${plural(rows.length, "key")} as by default`),
    table(rows, [{ title: "key", text: ([key]) => make("code", {}, key) }, { title: "value", text: ([, value]) => word(value) }], `Every other key of ${run.label}`));
}

function madeWith(run) {
  const made = run.made_with, versions = Object.entries(made.versions ?? {}).map(([name, version]) => `${name} ${word(version)}`).join(", ");
  const layout = Object.entries(made.layout ?? {}).map(([name, count]) => `${name} ${count}`).join(", ");
  return facts([
    ["seed", run.seed === null ? null : word(run.seed)], ["begun", date(run.begun)], ["ended", date(run.ended)], ["command", run.command && make("code", {}, run.command)],
    ["versions", versions], ["processor", made.processor && word(made.processor)], ["platform", made.platform && word(made.platform)],
    ["devices", [made.backend, Array.isArray(made.devices) ? plural(made.devices.length, "device") : null, layout].filter(Boolean).map(word).join(" · ")],
    ["continued", run.continued.length ? plural(run.continued.length, "time") : null],
    ["identity", made.identity && make("code", {}, word(made.identity).slice(0, 16))], ["code", made.code && make("code", {}, word(made.code).slice(0, 16))],
  ]);
}
