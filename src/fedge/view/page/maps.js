"use strict";
// Heat maps and bars.

/** Return the picture of who holds which labels: a column for each client, or for several; a row for each class. */
function labelsPicture(labels, cells) {
  const { kinds, share, cell, samples, clients } = labels;
  const draw = (width) => {
    const left = 16 + Math.min(110, 6.6 * most(kinds.map((kind) => kind.length)));
    const gap = cells > 60 ? 0 : 4, ordinal = cell.map((_, n) => new Set(cell.slice(0, n + 1)).size - 1);
    const wide = (width - left - gap * last(ordinal)) / share.length;
    const high = Math.max(7, Math.min(20, 300 / kinds.length));
    const drawing = svg("svg", { width, height: kinds.length * high + 36 });
    const x = (n) => left + n * wide + gap * ordinal[n];
    const every = Math.ceil(11 / high);
    kinds.forEach((kind, row) => row % every === 0 &&
      drawing.append(svg("text", { x: left - 8, y: (row + 0.5) * high + 4, "text-anchor": "end" }, cut(kind, 16))));
    share.forEach((column, n) => {
      drawing.append(svg("rect", { x: x(n).toFixed(2), y: 0, width: (wide + 0.05).toFixed(2), height: kinds.length * high, class: "empty" }));
      column.forEach((part, row) => part > 0 && drawing.append(svg("rect", { x: x(n).toFixed(2), y: (row * high).toFixed(1),
        width: (wide - (wide > 5 ? 1 : 0)).toFixed(2), height: (high - (high > 5 ? 1 : 0)).toFixed(1), class: "heat", "fill-opacity": part })));
    });
    drawing.append(...cellNames(cell, x, wide, kinds.length * high));
    const read = (n) => {
      const order = range(kinds.length).filter((k) => share[n][k] > 0).sort((a, b) => share[n][b] - share[n][a]);
      const rest = order.length > 6 ? [{ name: `${order.length - 6} more`, text: percent(total(order.slice(6).map((k) => share[n][k]))) }] : [];
      return { title: `cell ${cell[n]} · ${plural(clients[n], "client")} · ${plural(samples[n], "sample")}`, line: [0, kinds.length * high],
        rows: [...order.slice(0, 6).map((k) => ({ name: kinds[k], text: percent(share[n][k]) })), ...rest] };
    };
    return { drawing, read, stops: share.map((_, n) => ({ x: x(n) + wide / 2 })) };
  };
  const grouped = labels.group > 1 ? ` A row is ${labels.group} classes.` : "";
  return { title: "Who holds which labels", draw,
    note: `Columns are ${labels.says}; rows are classes. The stronger the colour, the larger the share of its samples.${grouped}` };
}

function cellNames(cell, x, wide, below) {
  const groups = new Map();
  cell.forEach((name, n) => groups.set(name, [groups.get(name)?.[0] ?? n, n]));
  let free = -Infinity;
  return [...groups].map(([name, [first, end]]) => {
    const middle = (x(first) + x(end) + wide) / 2, room = 7 * String(name).length + 34;
    if (middle - room / 2 < free) return null;
    free = middle + room / 2 + 4;
    return svg("text", { x: middle, y: below + 20, "text-anchor": "middle", class: "soft" }, `cell ${name}`);
  }).filter(Boolean);
}

/** Return the picture of bars, one below the other: rows are { name, parts: [{ name, value, slot }] }; `mark` is a line to compare with. */
function barsPicture({ title, note, rows, kind, mark = null, legend = true }) {
  const high = rows.length > 24 ? 12 : 26;
  const parts = [...new Map(rows.flatMap((row) => row.parts.map((part) => [part.name, part.slot])))];
  const draw = (width) => {
    const left = 12 + Math.min(0.36 * width, 6.9 * most(rows.map((row) => row.name.length)));
    const right = width - 76, keys = legend && parts.length > 1 ? legendOf(parts, left, width) : { rows: 0, drawn: [] };
    const top = mark ? 20 : 4, bottom = top + rows.length * high;
    const end = most([...rows.map((row) => total(row.parts.map((part) => part.value))), mark?.value ?? 0]) || 1;
    const place = (value) => left + (value / end) * (right - left);
    const drawing = svg("svg", { width, height: bottom + 10 + keys.rows * 20 });
    rows.forEach((row, n) => {
      let before = 0;
      const y = top + n * high;
      if (high > 12 || n % 2 === 0) drawing.append(svg("text", { x: left - 10, y: y + high / 2 + 4, "text-anchor": "end" }, cut(row.name, Math.floor((left - 10) / 6.4))));
      for (const part of row.parts) {
        const from = place(before), to = place((before += part.value));
        drawing.append(svg("rect", { x: from, y: y + 0.15 * high, width: Math.max(0, to - from - (row.parts.length > 1 ? 1 : 0)), height: 0.7 * high, class: `fill ${colour(part.slot)}` }));
      }
      drawing.append(svg("text", { x: place(before) + 8, y: y + high / 2 + 4, class: "soft" }, alone[kind](before)));
    });
    if (mark) {
      const x = place(mark.value);
      drawing.append(svg("line", { x1: x, x2: x, y1: top - 2, y2: bottom, class: "mark-line" }),
        svg("text", { x: Math.min(x, right + 60), y: 12, "text-anchor": "end", class: "soft" }, mark.says));
    }
    drawing.append(...keys.drawn.map((key) => complete(key, { transform: `translate(0 ${bottom + 14})` }, [])));
    const read = (n) => ({ title: rows[n].name, rows: rows[n].parts.map((part) => ({ name: part.name, slot: part.slot, text: alone[kind](part.value) })) });
    return { drawing, read, stops: rows.map((_, n) => ({ x: left, y: top + (n + 0.5) * high })) };
  };
  return { title, note, draw };
}

function legendOf(parts, left, width) {
  const each = 34 + 6.6 * most(parts.map(([name]) => name.length)), columns = Math.max(1, Math.floor((width - 12) / each));
  const from = columns >= parts.length ? Math.max(0, Math.min(left, width - parts.length * each)) : 0;
  const drawn = parts.map(([name, slot], n) => {
    const x = from + (n % columns) * each, y = Math.floor(n / columns) * 20;
    return svg("g", {}, svg("rect", { x, y: y - 5, width: 10, height: 10, class: `fill ${colour(slot)}` }), svg("text", { x: x + 16, y: y + 4 }, name));
  });
  return { rows: Math.ceil(parts.length / columns) + 0.4, drawn };
}
