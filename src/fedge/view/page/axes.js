"use strict";
// Axes: from numbers to places on a drawing, and the round numbers that stand beside them.

const STEPS = [1, 2, 2.5, 5, 10];

/** Return a scale from [low, high] to [from, to], with ticks so far apart that their labels have room. */
function scale(low, high, from, to, { log = false, whole = false, room = 60, nice = false, top = Infinity } = {}) {
  if (nice && log) [low, high] = [low / 1.1, high * 1.1];
  let ticks = log ? logTicks(low, high, Math.abs(to - from) / room) : evenTicks(low, high, Math.abs(to - from) / room, whole);
  if (nice && !log) {
    const step = ticks.step;
    [low, high] = [Math.floor(low / step + 1e-9) * step, Math.min(top, Math.ceil(high / step - 1e-9) * step)];
    ticks = evenTicks(low, high, Math.abs(to - from) / room, whole, step);
  }
  const at = log ? Math.log : (value) => value;
  const span = at(high) - at(low) || 1;
  const place = (value) => from + ((at(value) - at(low)) / span) * (to - from);
  return { place, ticks: ticks.values, step: ticks.step, low, high, log };
}

function evenTicks(low, high, count, whole, given = null) {
  const rough = (high - low || Math.abs(low) || 1) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = given ?? STEPS.map((digit) => digit * power).find((size) => size >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const values = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9 && values.length < 100; n += 1) values.push(n * step + 0); // -0 is 0
  return { values, step };
}

/** Choose powers of ten with as many digits between them as there is room for; on a short axis, evenly spaced numbers. */
function logTicks(low, high, count) {
  const first = Math.floor(Math.log10(low)), end = Math.ceil(Math.log10(high));
  const apart = Math.log(high / low) / Math.max(count, 2);
  for (const [digits, every] of [[[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3], [[1], 5], [[1], 20]]) {
    const values = [];
    for (let power = first; power <= end; power += every) values.push(...digits.map((digit) => Number(`${digit}e${power}`)));
    const shown = values.filter((value) => value >= low && value <= high);
    const near = shown.slice(1).some((value, n) => Math.log(value / shown[n]) < apart * 0.75);
    if (shown.length >= 2 && !near) return { values: shown, step: 0 };
  }
  const chosen = [];
  for (const value of evenTicks(low, high, count, false).values) {
    if (value > 0 && (!chosen.length || Math.log(value / last(chosen)) >= apart)) chosen.push(value);
  }
  return { values: chosen, step: 0 };
}

/** Return how values of a kind are written: beside an axis, with its unit in the title, and alone. */
function writing(kind, high, step, log) {
  const digits = step > 0 ? Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9))) : 0;
  const fixed = (value, places) => value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  const odd = step > 0 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 ? 1 : 0; // 2.5
  if (kind === "share") {
    return { tick: (v) => `${log ? plain(100 * v) : fixed(100 * v, Math.max(0, digits + odd - 2))}%`, unit: "" };
  }
  if (kind === "bytes") {
    const [one, unit] = UNITS.find(([one]) => high >= one) ?? [1, "bytes"];
    return log ? { tick: (v) => bytes(v, 1), unit: "" } : { tick: (v) => plain(v / one), unit: ` (${unit})` };
  }
  if (kind === "seconds") return { tick: plain, unit: " (s)" };
  const large = high >= 1e6 || high < 1e-3;
  return { tick: (v) => (log || large ? plain(v) : fixed(v, digits + odd)), unit: "" };
}

const alone = { share: percent, bytes, seconds, number: even };
