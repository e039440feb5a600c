// The page without a mouse: Tab reaches everything, forwards and backwards, and the focused element is visible.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, scratch, start, state, until, watched } from "./harness.mjs";

// The focused element: its name, and whether the focus is visible.
const focused = () => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const { left, right, top, height } = one.getBoundingClientRect();
  // A visible part suffices: the upper part of a high element, the unscrolled part of a table.
  const y = Math.min(top + height / 2, window.innerHeight - 10, top + 200);
  const points = [left + 5, (left + right) / 2, right - 5].map((x) => document.elementFromPoint(x, y));
  const isSeen = points.some((at) => at !== null && (one.contains(at) || at.closest("label")?.contains(one)));
  const by = points.map((at) => at?.id || at?.getAttribute("class") || at?.tagName);
  const isMarked = getComputedStyle(one).outlineStyle !== "none";
  return { by, at: Math.round(top), name: one.id || one.getAttribute("aria-label") || one.textContent.trim().slice(0, 40), isSeen, isMarked };
};

async function walk(page, key) {
  const met = [];
  await page.evaluate("document.activeElement.blur()");
  for (let steps = 0; steps < 300; steps += 1) {
    await page.keyboard.press(key);
    const one = await page.evaluate(focused);
    if (!one) return met;
    expect(one.isSeen, `${key}: ${one.name} has the focus at ${one.at} and is behind ${one.by}`);
    expect(one.isMarked, `${key}: the focus of ${one.name} is invisible`);
    met.push(one.name);
  }
  throw new Error(`${key} goes round and round: ${met.slice(-5)}`);
}

export async function keyboard(browser, program) {
  const output = join(scratch, "keyboard");
  mkdirSync(output);
  const run = start(program, ["demo", "--sources", "3", "--rate", "100Hz", "--output", output, "--duration", "300s", "--control", "127.0.0.1:0"]);
  const page = await browser.newPage({ viewport: { width: 1400, height: 700 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  await until(page, "running", state("running"));
  await until(page, "parameters", `document.querySelectorAll("#parameter-list li").length > 5`);
  await until(page, "plots", `document.querySelectorAll(".plot canvas").length >= 5`);
  // Backwards with the highest fixed head; forwards on the smallest phone in landscape.
  for (const [width, height, key] of [[1000, 700, "Shift+Tab"], [500, 320, "Tab"]]) {
    await page.setViewportSize({ width, height });
    // New layout moves the focused element.
    await until(page, "the page as wide as the window", `document.querySelector("#path svg").viewBox.baseVal.width < 500 === ${width < 720}
      && [...document.querySelectorAll("#plots .plot")].every((plot) => plot.querySelector(".uplot").clientWidth === plot.clientWidth)`);
    await page.evaluate("window.scrollTo(0, 0)");
    const met = await walk(page, key);
    for (const name of ["who", "take", "source-filter", "parameter-timeouts.readout", "event-kind", "note-text", "interface"]) {
      expect(met.includes(name), `${name} is not reached with ${key}`);
    }
  }
  expectQuiet(/ 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: everything is reached from the keyboard, and seen when it is");
}
