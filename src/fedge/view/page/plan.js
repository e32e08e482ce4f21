"use strict";
// A plan: what is recommended and how sure that is, what settings cost, how they raced, what would change the answer.

const COSTS = { seconds: { title: "simulated time", one: "simulated time", kind: "seconds" }, bytes: { title: "sent on all tiers", one: "sent", kind: "bytes" },
  client_memory: { title: "memory of a client", one: "memory of a client", kind: "bytes" }, energy: { title: "clients' energy (J)", one: "joules", kind: "number" } };
const FIRST = 12; // settings that stand in the table at first

/** Return the sections that only a plan has; a part whose numbers are damaged is left out. */
function planned() {
  const { plan } = page, whole = (build) => { try { return build(); } catch { return null; } };
  if (!plan) return [];
  return [plan.answer && whole(answered), plan.answer && whole(priced), plan.race.length && whole(raced), plan.answer && whole(changing), whole(searched)];
}

const families = () => [...new Set(page.plan.race.map((one) => one.algorithm))];
const slotOf = (algorithm) => Math.max(0, families().indexOf(algorithm));
const there = () => page.plan.answer.settings.filter((line) => line.reached);
const pick = () => page.plan.answer.recommended;
const described = (line) => [line.name === pick()?.name ? make("b", {}, line.name) : line.name, line.front ? make("span", { class: "soft-text" }, " front") : null];
/** Say who sees what besides the client: updates, and what a split model sends. */
function seen(line) {
  const whom = new Map();
  for (const [what, who] of Object.entries(line.exposes)) whom.set(who, [...(whom.get(who) ?? []), what]);
  return [...whom].map(([who, what]) => `${what.join(", ")}: ${who}`).join("; ");
}

// The answer

function answered() {
  const { remarks } = page.plan, heads = { "to run it": "To run it", "how sure": "How sure", "not tried": "Not tried", bottleneck: "Bottleneck", "other rates": "With other rates", "it shows": "It shows" };
  const told = Object.entries(heads).filter(([name]) => remarks[name]).map(([name, head]) => [head, make("ul", { class: "plain" }, remarks[name].map((line) => make("li", {}, line)))]);
  return section("answer", "The answer", stable("answer-parts", [remarks, pick()?.command], () => make("div", {},
    pick() ? [make("p", { class: "lead" }, make("b", {}, pick().name)), pick().command && command(pick().command, "copy-setting")] : make("p", {}, (remarks.answer ?? []).join(" ")), wideFacts(told))));
}

const wideFacts = (pairs) => make("dl", { class: "wide" }, pairs.map(([name, said]) => make("div", {}, make("dt", {}, name), make("dd", {}, said))));

// What settings cost

function priced() {
  if (!there().length) return section("front", "How far they came", stable("settings", page.plan.answer, settingsTable));
  const pairs = [["seconds", "bytes"], ["seconds", "client_memory"], ...(there().some((line) => isNumber(line.race.energy)) ? [["seconds", "energy"]] : [])];
  return section("front", "What they cost", familyLegend(),
    box("fronts", "div", { class: "pair" }, ...pairs.map(([x, y]) => figure(`front-${y}`, frontPicture(x, y)))), stable("settings", page.plan.answer, settingsTable));
}

function familyLegend() {
  return stable("families", families(), () => make("p", { class: "legend" }, families().map((name) => make("span", { class: "named" }, swatch(slotOf(name)), name))));
}

/** Return the picture of what settings cost in the race: a point each, those of the front ringed. */
function frontPicture(x, y) {
  const cost = (line, key) => (key === "client_memory" ? line.client_memory : line.race[key]);
  const lines = there().filter((line) => isNumber(cost(line, x)) && isNumber(cost(line, y)));
  const [a, b] = [COSTS[x], COSTS[y]], far = (values) => least(values) > 0 && most(values) > 20 * least(values);
  const draw = (width, paper) => {
    const high = paper ? 400 : 320, legend = paper ? 24 : 0, plot = { left: 62, right: width - 20, top: 30, bottom: high - 42 };
    const drawing = svg("svg", { width, height: high + legend });
    const ends = (key) => { const values = lines.map((line) => cost(line, key)), [low, end] = [least(values), most(values)];
      return far(values) ? [low / 1.3, end * 1.3, true] : [Math.max(0, low - 0.12 * (end - low || low)), end + 0.12 * (end - low || end || 1), false]; };
    const [xs, ys] = [ends(x), ends(y)];
    const across = scale(xs[0], xs[1], plot.left, plot.right, { log: xs[2], room: 84 }), up = scale(ys[0], ys[1], plot.bottom, plot.top, { log: ys[2], room: 46 });
    drawing.append(...axes(across, up, a, b, plot, false),
      svg("text", { x: 0, y: 14, class: "soft" }, `${b.title}${writing(b.kind, up.high, up.step, up.log).unit}`));
    const at = (line) => ({ x: across.place(cost(line, x)), y: up.place(cost(line, y)) });
    const order = [...lines].sort((one, other) => Number(one.front) - Number(other.front));
    for (const line of order) {
      const { x: left, y: top } = at(line);
      drawing.append(svg("g", { "data-setting": line.name }, marker(slotOf(line.keys.algorithm), left, top, 5), line.front ? svg("circle", { cx: left, cy: top, r: 9, class: "ring" }) : null));
    }
    const best = lines.find((line) => line.name === pick()?.name);
    if (best) {
      const { x: left, y: top } = at(best), side = left > (plot.left + plot.right) / 2 ? -1 : 1;
      drawing.append(svg("text", { x: left + 14 * side, y: top - 10 < plot.top ? top + 20 : top - 8, "text-anchor": side < 0 ? "end" : "start", class: "halo" }, "recommended"));
    }
    if (paper) drawing.append(...families().map((name, n) => svg("g", {}, marker(n, 66 + n * 110, high + 8, 4), svg("text", { x: 76 + n * 110, y: high + 12 }, name))));
    const read = (n) => ({ title: order[n].name, rows: [[a, x], [b, y]].map(([axis, key]) => ({ name: axis.one, slot: slotOf(order[n].keys.algorithm), text: alone[axis.kind](cost(order[n], key)) })) });
    return { drawing, read, stops: order.map(at) };
  };
  return { title: `${b.title[0].toUpperCase()}${b.title.slice(1)}, and time to the target`, draw,
    note: "Each point is a setting, at what it cost in the race, on one seed. Ringed: the front, which no other setting beats in everything." };
}

function settingsTable() {
  const { answer, target } = page.plan, energy = answer.settings.some((line) => isNumber(line.energy));
  const lines = [...there(), ...answer.settings.filter((line) => !line.reached)], how = alone[target.share ? "share" : "number"];
  const shown = lines.filter((line, n) => line.reached && (n < FIRST || line.front)), rest = lines.filter((line) => !shown.includes(line));
  const value = (key, write) => ({ title: { seconds: "seconds", bytes: "sent", energy: "joules", client_memory: "a client holds" }[key], text: (line) => written(line[key], write), number: true });
  const name = { title: "setting", text: described };
  const costs = table(shown, [name, value("seconds", seconds), value("bytes", bytes), value("client_memory", bytes), energy && value("energy", even),
    { title: "rounds", text: (line) => written(line.rounds, plain), number: true }, { title: "fresh seeds", text: (line) => (line.fresh_seeds ? `${line.fresh_seeds.reached} of ${line.fresh_seeds.of}` : "the race's"), number: true },
    { title: "who sees what", text: seen, wide: true }].filter(Boolean), "Settings that reached the target");
  const gone = () => table(rest, [name, { title: `best ${target.title}`, text: (line) => written(line.best, how), number: true }, { title: "after", text: (line) => (isNumber(line.best) ? seconds(line.at_seconds) : "–"), number: true },
    { title: "client steps", text: (line) => written(line.client_steps, plain), number: true }, { title: "what became of it", text: (line) => line.fate, wide: true }], "Settings that went, and why");
  return make("div", {}, shown.length ? costs : null,
    shown.length ? make("p", { class: "note" }, "Costs of a setting with fresh seeds are means over these, others are those of the race. Updates let others infer things about data too; activations and labels show more.") : null,
    rest.length ? make("details", { open: !shown.length }, make("summary", { id: "gone" }, `${plural(rest.length, "setting")} more, and what became of ${rest.length > 1 ? "them" : "it"}`), gone()) : null);
}

// The race

function raced() {
  const { race, target, asked, more } = page.plan, x = asked.minimise === "bytes" ? "bytes" : "simulated_seconds";
  const tested = race.filter((one) => (one.columns[target.metric] ?? []).some(isNumber));
  const best = new Set((page.plan.answer ? there() : []).map((line) => line.name));
  const series = tested.map((one) => ({ name: one.name, slot: slotOf(one.algorithm), x: one.columns[x], y: one.columns[target.metric], thin: !best.has(one.name) }));
  const ends = series.flatMap((one) => one.x.filter(isNumber));
  if (isNumber(target.value) && ends.length) series.push({ name: "the target", slot: 7, x: [least(ends), most(ends)], y: [target.value, target.value], thin: true });
  const keys = [...families().map((name) => ({ name, slot: slotOf(name) })), { name: "the target", slot: 7 }];
  const note = `Each line is a setting on the race's seed${more ? `, of the first ${race.length}` : ""}. It ends where the setting was dropped or reached the target; settings train up to the same cost, lap by lap.`;
  return section("race", page.plan.answer ? "The race" : "The race so far", page.plan.answer ? null : familyLegend(), figure("race", linesPicture({ title: `${target.title[0].toUpperCase()}${target.title.slice(1)} of every setting that was tried`, series,
    keys, x: AXES[x], y: { title: target.title, kind: target.share ? "share" : "number" }, height: innerWidth < 600 ? 270 : 340, note })), page.plan.answer ? null : stable("laps", race.map((one) => one.steps), lapsTable));
}

function lapsTable() {
  const { race, target } = page.plan, how = alone[target.share ? "share" : "number"], end = (one, name) => last((one.columns[name] ?? []).filter(isNumber));
  const order = [...race].sort((a, b) => (end(b, target.metric) ?? -Infinity) - (end(a, target.metric) ?? -Infinity)).slice(0, FIRST);
  return table(order, [{ title: "setting", text: (one) => one.name }, { title: `${target.title} so far`, text: (one) => written(end(one, target.metric), how), number: true },
    { title: "after", text: (one) => written(end(one, "simulated_seconds"), seconds), number: true }, { title: "rounds", text: (one) => written(end(one, "round"), plain), number: true },
    { title: "client steps", text: (one) => plain(one.steps), number: true }], "How far settings have come");
}

// What would change it

function changing() {
  if (!pick()?.changes?.length) return null;
  const rates = [...new Set(pick().changes.map((change) => change.rate))], of = (rate, factor) => pick().changes.find((change) => change.rate === rate && change.factor === factor);
  const same = (change) => change.best === pick().name, now = pick()[page.plan.answer.question.minimise];
  const rows = pick().changes.filter((change) => !same(change) || Math.abs(change.cost / now - 1) >= 5e-4);
  const energy = page.plan.answer.question.minimise, write = { seconds, bytes, energy: (value) => `${even(value)} J` }[energy];
  return section("changes", "What would change it", figure("rates", ratesPicture(rates, of)), stable("changes-table", pick(), () => table(rows, [
    { title: "rate", text: (change) => `${change.rate}, ${change.factor < 1 ? "half" : "twice"} as fast` },
    { title: "the recommended then costs", text: (change) => write(change.cost), number: true },
    { title: "the cheapest then", text: (change) => (same(change) ? "the same" : make("b", {}, change.best)), wide: true },
    { title: "costs", text: (change) => write(change.best_cost), number: true }], "Costs with other rates")));
}

/** Return the picture of how much longer or shorter the recommended setting takes with each rate halved and doubled. */
function ratesPicture(rates, of) {
  const now = pick().seconds, change = (rate, factor) => (of(rate, factor) ? of(rate, factor).seconds / now - 1 : 0), high = 30;
  const said = (value) => `${value > 0 ? "+" : ""}${(100 * value).toFixed(Math.abs(value) < 0.1 ? 1 : 0)}%`, kinds = [[0.5, 1, "half as fast"], [2, 2, "twice as fast"]];
  const draw = (width) => {
    const left = 14 + Math.min(0.4 * width, 6.9 * most(rates.map((rate) => rate.length))) + 44, right = width - 54;
    const [low, end] = [least([0, ...rates.flatMap((r) => kinds.map(([f]) => change(r, f)))]), most([0.01, ...rates.flatMap((r) => kinds.map(([f]) => change(r, f)))])];
    const place = (value) => left + ((value - low) / (end - low)) * (right - left), bottom = rates.length * high + 4;
    const drawing = svg("svg", { width, height: bottom + 26 });
    rates.forEach((rate, n) => {
      drawing.append(svg("text", { x: left - 52, y: n * high + high / 2 + 6, "text-anchor": "end" }, cut(rate, Math.floor((left - 52) / 6.2))));
      kinds.forEach(([factor, slot], k) => {
        const value = change(rate, factor), from = place(Math.min(0, value)), to = place(Math.max(0, value)), y = n * high + 4 + k * 12;
        if (Math.abs(value) < 5e-4) return;
        drawing.append(svg("rect", { x: from, y, width: Math.max(1, to - from), height: 10, class: `fill ${colour(slot)}` }),
          svg("text", { x: value > 0 ? to + 5 : from - 5, y: y + 9, "text-anchor": value > 0 ? "start" : "end", class: "soft" }, said(value)));
      });
    });
    drawing.append(svg("line", { x1: place(0), x2: place(0), y1: 0, y2: bottom, class: "base" }),
      ...kinds.map(([, slot, name], n) => svg("g", {}, svg("rect", { x: n * 120, y: bottom + 10, width: 10, height: 10, class: `fill ${colour(slot)}` }), svg("text", { x: n * 120 + 16, y: bottom + 19 }, name))));
    const read = (n) => ({ title: rates[n], rows: kinds.map(([factor, slot, name]) => ({ name, slot, text: said(change(rates[n], factor)) })) });
    return { drawing, read, stops: rates.map((_, n) => ({ x: left, y: (n + 0.5) * high })) };
  };
  return { title: "The recommended setting's time, with other rates", draw, note: "What a setting learns does not depend on rates, so this is reckoned and not trained. Where nothing is drawn nothing changes." };
}

// What was asked and searched

function searched() {
  const { answer, asked } = page.plan, parts = [];
  if (answer) {
    const rows = Object.entries(answer.choices ?? {}), reasons = new Map();
    for (const why of Object.values(answer.refused)) reasons.set(why, (reasons.get(why) ?? 0) + 1);
    parts.push(table(rows, [{ title: "algorithm", text: ([name]) => name }, { title: "settings", text: ([, own]) => plain(own.possible), number: true }, { title: "tried", text: ([, own]) => plain(own.tried), number: true },
      { title: "values", wide: true, text: ([, own]) => Object.entries(own.values).map(([key, some]) => `${key}=${some.map(word).join(",")}`).join(" ") }], "What was searched"));
    if (reasons.size) {
      parts.push(make("h3", { class: "of-table" }, "Left out before anything was trained"), table([...reasons], [{ title: "settings", text: ([, count]) => count }, { title: "why", text: ([why]) => why, wide: true }], "Left out"));
    }
  }
  const question = { ...(answer?.question ?? {}), ...(answer?.keys ?? {}), ...asked };
  const rows = Object.entries(question).filter(([, value]) => value !== null);
  parts.push(make("h3", { class: "of-table" }, "The question"), table(rows, [{ title: "word", text: ([key]) => make("code", {}, key) }, { title: "value", text: ([key, value]) => make(key in asked ? "b" : "span", {}, Array.isArray(value) ? value.map(word).join(", ") : word(value)) }], "The question"),
    make("p", { class: "note" }, "In bold is what was asked; the rest is as by default."));
  return section("searched", "What was asked, and what was searched", stable("searched-parts", [answer?.choices, answer?.refused, question], () => make("div", {}, parts)));
}

// Tables to keep

const planData = () => (page.plan ? [page.plan.csv && make("button", { type: "button", id: "save-settings", click: () => keep(`${slug(page.name)}-settings.csv`, new Blob([page.plan.csv], { type: "text/csv" })) }, "Every setting, CSV"),
  make("button", { type: "button", id: "save-race", click: () => keep(`${slug(page.name)}-race.csv`, new Blob([csv(raceTable())], { type: "text/csv" })) }, "Every test of the race, CSV")] : []);

function raceTable() {
  const columns = [...new Set(page.plan.race.flatMap((one) => Object.keys(one.columns)))];
  return [["setting", "algorithm", ...columns], ...page.plan.race.flatMap((one) => (one.columns.round ?? []).map((_, n) => [one.name, one.algorithm, ...columns.map((name) => one.columns[name]?.[n])]))];
}
