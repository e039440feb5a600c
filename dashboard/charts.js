// What plots, histograms and the event display share: colours, axes, statistics, and files to save.

import { element, grouped } from "./format.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const axis = () => ({ stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });

// The vertical scale: from zero to a bit above the greatest value, or whole decades.
export function valueScale(isLog, most) {
  if (!isLog) return { range: (_, __, greatest) => [0, most ?? Math.max(greatest * 1.1, 1e-9)] };
  const decade = (value, round) => 10 ** round(Math.log10(value));
  const range = (_, least, greatest) => (greatest > 0 ? [decade(least, Math.floor), Math.max(decade(greatest, Math.ceil), 10 * decade(least, Math.floor))] : [0.1, 1]);
  return { distr: 3, range };
}

// Values on a logarithmic scale: there is no place for zero.
export const positive = (values) => values.map((value) => (value > 0 ? value : null));

// Entries, mean, RMS about the mean, median and 99th percentile of values with a count each.
export function statistics(values, counts = values.map(() => 1)) {
  const sorted = values.map((value, index) => [value, counts[index]]).filter(([value, count]) => value !== null && value !== undefined && count > 0);
  sorted.sort(([one], [other]) => one - other);
  const entries = sorted.reduce((sum, [, count]) => sum + count, 0);
  if (entries === 0) return { entries };
  const mean = sorted.reduce((sum, [value, count]) => sum + value * count, 0) / entries;
  const rms = Math.sqrt(sorted.reduce((sum, [value, count]) => sum + count * (value - mean) ** 2, 0) / entries);
  const quantile = (share) => {
    let below = 0;
    return sorted.find(([, count]) => (below += count) >= share * entries)[0];
  };
  return { entries, mean, rms, median: quantile(0.5), p99: quantile(0.99) };
}

export function statisticsText({ entries, mean, rms, median, p99 }, unit) {
  if (entries === 0) return "Entries 0";
  return `Entries ${grouped(entries)} · mean ${unit(mean)} · RMS ${unit(rms)} · median ${unit(median)} · 99th percentile ${unit(p99)}`;
}

export function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  // The browser has read the address when the click returns; some read the data later.
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Saves a table: column heads, then rows; null is an empty field.
export function saveCsv(name, rows) {
  const field = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  save(name, new Blob([rows.map((row) => `${row.map(field).join(",")}\n`).join("")], { type: "text/csv" }));
}

// Saves canvases one below the other, each with a title above it.
export function savePng(name, pictures) {
  const scale = devicePixelRatio;
  const title = 24 * scale;
  const all = document.createElement("canvas");
  all.width = Math.max(...pictures.map(({ canvas }) => canvas.width));
  all.height = pictures.reduce((sum, { canvas }) => sum + canvas.height + title, 0);
  const context = all.getContext("2d");
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, all.width, all.height);
  context.font = `${14 * scale}px system-ui, sans-serif`;
  let top = 0;
  for (const { text, canvas } of pictures) {
    context.fillStyle = colour("--ink");
    context.fillText(text, 8 * scale, top + 17 * scale, all.width - 16 * scale);
    context.drawImage(canvas, 0, top + title);
    top += title + canvas.height;
  }
  all.toBlob((blob) => save(name, blob));
}
