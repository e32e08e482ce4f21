"use strict";
// Elements, numbers written for people, and files to keep. Text is only ever set as text: nothing here parses HTML.

/** Make an element. A function listens to the event of its name; null, undefined and false leave an attribute out. */
function make(tag, attributes = {}, ...children) {
  return complete(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
function svg(tag, attributes = {}, ...children) {
  return complete(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function complete(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const last = (values) => (values && values.length ? values[values.length - 1] : null);
const range = (count) => Array.from({ length: count }, (_, n) => n);
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const total = (values) => values.reduce((a, b) => a + b, 0);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// Numbers

const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

function plain(value) {
  if (value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-4)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 15 : 4, maximumFractionDigits: 4 });
}

const percent = (value) => `${(100 * value).toFixed(1)}%`;

function bytes(count, significant = 3) {
  const [one, unit] = UNITS.find(([one]) => count >= one) ?? [1, count === 1 ? "byte" : "bytes"];
  const digits = one === 1 || count >= 1000 * one ? { maximumFractionDigits: 0 } : { minimumSignificantDigits: significant, maximumSignificantDigits: 3 };
  return `${(count / one).toLocaleString("en", digits)} ${unit}`;
}

function seconds(count) {
  if (count > 0 && count < 0.95) return `${Number(count.toPrecision(2))} s`;
  const [value, unit] = count >= 10000 ? [count / 3600, "h"] : [count, "s"];
  return `${value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} ${unit}`;
}

/** Write a number with the same digits as those above and below it in a table. */
function even(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1000 || Math.abs(value) < 0.001) return plain(value);
  return value.toFixed(4);
}

/** Write a value of a configuration. */
function word(value) {
  if (value === null || value === undefined) return "–";
  return value === "" ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

function date(text) {
  const when = text ? new Date(text) : null;
  if (!when || Number.isNaN(when.getTime())) return null;
  return `${when.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short", timeZone: "UTC" })} UTC`;
}

// Files to keep

function keep(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Write a table as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front. */
function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

const slug = (text) => text.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "fedge";
