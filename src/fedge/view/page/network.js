"use strict";
// Who talks to whom: the cloud, the edges and their clients, what each link carried, and for whom the others waited.

const GOLDEN = Math.PI * (3 - Math.sqrt(5));
const DRAWN = 64; // cells with a disc each

const TIERS = {
  client_to_edge: "client → edge", edge_to_client: "edge → client", labels_to_edge: "labels → edge", edge_to_cloud: "edge → cloud",
  cloud_to_edge: "cloud → edge", edge_to_edge: "edge ↔ edge", client_to_cloud: "client → cloud", cloud_to_client: "cloud → client",
};
/** What flows there, by which bars are coloured: the first hop of a client looks the same whether it ends at an edge or in the cloud. */
const FLOWS = [
  ["up from clients", ["client_to_edge", "client_to_cloud"], 0], ["down to clients", ["edge_to_client", "cloud_to_client"], 5],
  ["labels", ["labels_to_edge"], 3], ["up to the cloud", ["edge_to_cloud"], 1], ["down from the cloud", ["cloud_to_edge"], 4],
  ["between edges", ["edge_to_edge"], 2],
];
const tierName = (tier) => TIERS[tier] ?? tier.replaceAll("_", " ");

/** Return the picture of a run's network; a summary where there are more cells than a drawing has room for. */
function networkPicture(run) {
  const { topology, exchange } = run.setting;
  const many = topology.cells > DRAWN || !topology.each_cell;
  const draw = (width) => (many ? drawLevels(run, width) : exchange === "direct" ? drawStar(run, width) : drawCells(run, width));
  return { title: "Who talks to whom", note: networkNote(run, many), draw };
}

function networkNote(run, many) {
  const waits = run.waiting?.each_client, said = [];
  if (!many && run.traffic) said.push("The wider a line, the more its link carried.");
  if (!many && waits && most(waits.last) > 0) said.push("Filled dots are clients that the others of their cell waited for, the larger the more often.");
  else if (!many && run.waiting && run.setting.network?.equal) said.push("Devices and links are alike here, so no client waited for another.");
  if ((run.traffic || run.waiting) && upTo(run)) said.push(`What links carried and who waited is counted${upTo(run)}.`);
  if (many) said.push("There are too many cells to draw each of them.");
  return said.join(" ");
}

// Places

/** Return the cells as { clients, radius }, with the places of their clients about a middle: seeds of a sunflower. */
function discs(run, spacing) {
  const { topology } = run.setting, owner = topology.each_client?.cell;
  return range(topology.cells).map((cell) => {
    const clients = owner ? range(owner.length).filter((client) => owner[client] === cell) : [];
    const count = clients.length || Math.sqrt(topology.each_cell.clients[cell]);
    return { cell, clients, radius: Math.max(22, spacing * Math.sqrt(count + 3) + 4) };
  });
}

const seed = (n, spacing) => ({ dx: spacing * Math.sqrt(n + 3.2) * Math.cos(n * GOLDEN), dy: spacing * Math.sqrt(n + 3.2) * Math.sin(n * GOLDEN) });

/** Choose how far clients stand apart, so that all discs fit side by side, or in rows. */
function spacingOf(run, room) {
  const biggest = Math.max(1, run.setting.topology.each_client ? run.setting.topology.cell_clients.most : 9);
  return Math.max(2.6, Math.min(17, (room - 8) / (2 * Math.sqrt(biggest + 3))));
}

function drawStar(run, width) {
  const count = run.setting.topology.each_client ? run.setting.topology.clients : 0;
  const spacing = Math.max(6, Math.min(24, (Math.min(width, 460) - 40) / (2 * Math.sqrt(count + 3)))), middle = width / 2;
  const high = 2 * spacing * Math.sqrt(count + 4) + 40, y = high / 2;
  const sketch = newSketch(run, width, high);
  range(count).forEach((client) => {
    const { dx, dy } = seed(client, spacing);
    sketch.client(client, middle + dx, y + dy, middle, y, spacing);
  });
  sketch.cloud(middle, y);
  return sketch.done(count ? [] : [`${plural(run.setting.topology.clients, "client")}`]);
}

function drawCells(run, width) {
  const gossip = run.setting.exchange === "gossip", cells = run.setting.topology.cells;
  const across = gossip ? Math.min(cells, width < 560 ? 3 : 5) : Math.min(cells, Math.max(2, Math.floor(width / Math.max(90, width / 12))));
  const spacing = spacingOf(run, gossip ? Math.min(200, width / 3.2) : Math.min(200, width / across)), all = discs(run, spacing);
  const radius = most(all.map((disc) => disc.radius));
  const places = gossip ? onRing(ringOrder(cells, run.setting.graph?.each_link ?? []), radius, width) : inRows(all, across, radius, width);
  const sketch = newSketch(run, width, places.high);
  if (gossip) for (const [a, b] of run.setting.graph?.each_link ?? []) sketch.exchange(a, b, places.at[a], places.at[b]);
  else for (const { cell } of all) sketch.uplink(cell, places.at[cell], { x: width / 2, y: 22 });
  for (const { cell, clients } of all) {
    clients.forEach((client, n) => {
      const { dx, dy } = seed(n, spacing), { x, y } = places.at[cell];
      sketch.client(client, x + dx, y + dy, x, y, spacing);
    });
  }
  for (const { cell } of all) sketch.edge(cell, places.at[cell].x, places.at[cell].y, radius);
  if (!gossip) sketch.cloud(width / 2, 22);
  return sketch.done([]);
}

function inRows(all, across, radius, width) {
  const rows = Math.ceil(all.length / across), step = 2 * radius + 30, top = 84;
  const at = all.map((_, n) => {
    const row = Math.floor(n / across), inRow = Math.min(across, all.length - row * across);
    return { x: ((n % across) + 0.5) * (width / inRow), y: top + radius + row * step };
  });
  return { at, high: top + rows * step };
}

/** Walk from neighbour to neighbour, so that a ring of edges is drawn as one. */
function ringOrder(cells, links) {
  const order = [0], near = range(cells).map((cell) => links.filter((link) => link.includes(cell)).map(([a, b]) => (a === cell ? b : a)));
  while (order.length < cells) order.push([...near[last(order)], ...range(cells)].find((cell) => !order.includes(cell)));
  return order;
}

function onRing(order, radius, width) {
  const count = order.length, at = [];
  const wanted = count === 1 ? 0 : (radius + 16) / Math.sin(Math.PI / count);
  const rx = Math.min(Math.max(wanted, 1), width / 2 - radius - 8), ry = Math.max(1, Math.min(wanted, 210, Math.max(rx, 100)));
  order.forEach((cell, n) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * n) / count + (count === 4 ? Math.PI / 4 : 0);
    at[cell] = { x: width / 2 + rx * Math.cos(angle), y: ry * Math.sin(angle) };
  });
  const top = least(at.map(({ y }) => y)) - radius - 8;
  for (const place of at) place.y -= top;
  return { at, high: most(at.map(({ y }) => y)) + radius + 30 };
}

// What is drawn

function newSketch(run, width, high) {
  const { traffic, waiting, setting } = run, { topology } = setting;
  const links = svg("g"), nodes = svg("g"), stops = [], readings = [];
  const heaviest = most(Object.values(traffic ?? {}).map((tier) => tier.most)) || 1;
  const each = (tier, n) => traffic?.[tier]?.each?.[n];
  const wide = (...sent) => (0.6 + 3.4 * Math.sqrt(most([0, ...sent.filter(isNumber)]) / heaviest)).toFixed(2);
  const times = waiting?.each_client?.last, often = times ? most(times) : 0;
  const line = (a, b, w, kind) => links.append(svg("line", { x1: a.x.toFixed(1), y1: a.y.toFixed(1), x2: b.x.toFixed(1), y2: b.y.toFixed(1), "stroke-width": w, class: kind }));
  const tell = (x, y, title, rows) => {
    stops.push({ x, y });
    readings.push({ title, rows: rows.filter(([, text]) => text !== null).map(([name, text]) => ({ name, text })) });
  };
  const sent = (tiers, n) => tiers.map((tier) => [tierName(tier), isNumber(each(tier, n)) ? bytes(each(tier, n)) : null]);
  const waits = (account, n) => [["waited", account?.waits ? seconds(account.waits[n]) : null]];
  return {
    client(client, x, y, toX, toY, spacing) {
      line({ x, y }, { x: toX, y: toY }, wide(each("client_to_edge", client), each("client_to_cloud", client)) / 2, "link");
      const late = often > 0 ? times[client] / often : 0, r = Math.max(2, Math.min(5, spacing * 0.36)) * (1 + 0.5 * late);
      nodes.append(svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: r.toFixed(2), class: late ? "client late" : "client" }));
      tell(x, y, `client ${client}`, [["samples", topology.each_client.samples[client].toLocaleString("en")],
        ...sent(["client_to_edge", "edge_to_client", "labels_to_edge", "client_to_cloud", "cloud_to_client"], client),
        ["busy", waiting?.each_client ? seconds(waiting.each_client.busy[client]) : null], ...waits(waiting?.each_client, client),
        ["others waited for it", often > 0 ? `${times[client]} times` : null]]);
    },
    edge(cell, x, y, radius) {
      nodes.append(svg("circle", { cx: x, cy: y, r: 11, class: "edge" }), svg("text", { x, y: y + 4, "text-anchor": "middle", class: "inverse" }, cell));
      const count = topology.each_cell.clients[cell];
      nodes.append(svg("text", { x, y: y + radius + 16, "text-anchor": "middle", class: "soft halo" }, plural(count, "client")));
      const last = waiting?.each_edge?.last, toOthers = between(run).filter(({ from }) => from === cell);
      tell(x, y, `edge ${cell}`, [["clients", count.toLocaleString("en")], ["samples", topology.each_cell.samples[cell].toLocaleString("en")],
        ...sent(["edge_to_cloud", "cloud_to_edge"], cell), ...toOthers.map(({ to, sent }) => [`to edge ${to}`, bytes(sent)]),
        ...waits(waiting?.each_edge, cell), ["the cloud waited for it", last && most(last) > 0 ? `${last[cell]} times` : null]]);
    },
    cloud(x, y) {
      nodes.append(svg("rect", { x: x - 32, y: y - 14, width: 64, height: 28, rx: 14, class: "edge" }),
        svg("text", { x, y: y + 4, "text-anchor": "middle", class: "inverse" }, "cloud"));
      tell(x, y, "cloud", Object.entries(traffic ?? {}).filter(([tier]) => tier.includes("cloud")).map(([tier, found]) => [tierName(tier), bytes(found.total)]));
    },
    uplink: (cell, at, cloud) => line(at, cloud, wide(each("edge_to_cloud", cell)), "link"),
    exchange: (a, b, from, to) => line(from, to, wide(...between(run).filter((one) => one.from === a && one.to === b).map((one) => one.sent)), "link strong"),
    done: (said) => ({ drawing: svg("svg", { width, height: high }, links, nodes,
      said.map((text, n) => svg("text", { x: width / 2, y: high - 12 + 16 * n, "text-anchor": "middle", class: "soft" }, text))), stops, read: (n) => readings[n] }),
  };
}

function between(run) {
  const tier = run.traffic?.edge_to_edge;
  if (!tier?.pairs || !tier.each) return [];
  return tier.pairs.map(([from, to], n) => ({ from, to, sent: tier.each[n] }));
}

/** Draw the levels alone, with what went up and down between them. */
function drawLevels(run, width) {
  const { topology, exchange } = run.setting, middle = width / 2, levels = [];
  if (exchange !== "gossip") levels.push(["cloud", ["edge_to_cloud", "client_to_cloud"], ["cloud_to_edge", "cloud_to_client"]]);
  if (exchange !== "direct") levels.push([plural(topology.cells, "edge"), ["client_to_edge", "labels_to_edge"], ["edge_to_client"]]);
  levels.push([plural(topology.clients, "client"), [], []]);
  const drawing = svg("svg", { width, height: levels.length * 92 - 40 }), stops = [], titles = [];
  const sum = (tiers) => total(tiers.map((tier) => run.traffic?.[tier]?.total ?? 0));
  levels.forEach(([name, up, down], n) => {
    const y = 24 + n * 92, wide = 30 + 7 * name.length;
    if (n < levels.length - 1) {
      drawing.append(svg("line", { x1: middle, x2: middle, y1: y, y2: y + 92, class: "link", "stroke-width": 3 }),
        svg("text", { x: middle + 14, y: y + 50, class: "soft" }, run.traffic ? `↑ ${bytes(sum(up))}   ↓ ${bytes(sum(down))}` : ""));
    }
    drawing.append(svg("rect", { x: middle - wide / 2, y: y - 15, width: wide, height: 30, rx: 15, class: "edge" }),
      svg("text", { x: middle, y: y + 4, "text-anchor": "middle", class: "inverse" }, name));
    stops.push({ x: middle, y });
    titles.push(name);
  });
  return { drawing, stops, read: (n) => ({ title: titles[n], rows: [] }) };
}
