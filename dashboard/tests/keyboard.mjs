// The page without a mouse: Tab reaches each control, forwards and backwards, and the focus is visible.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, scratch, start, state, until, watched } from "./harness.mjs";

// The element with the focus: its name, and whether the focus is visible.
const focused = () => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const { left, right, top, height } = one.getBoundingClientRect();
  // A part of it is enough: of what is higher than the window the upper one, in a table the one that is not scrolled away.
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
    expect(one.isMarked, `${key}: ${one.name} has the focus and does not show it`);
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
  // Backwards where the head stays on top, as high as it gets; forwards on the smallest phone, turned.
  for (const [width, height, key] of [[1000, 700, "Shift+Tab"], [500, 320, "Tab"]]) {
    await page.setViewportSize({ width, height });
    // What is laid out anew takes what has the focus along.
    await until(page, "the page as wide as the window", `document.querySelector("#path svg").viewBox.baseVal.width < 500 === ${width < 720}
      && [...document.querySelectorAll("#plots .plot")].every((plot) => plot.querySelector(".uplot").clientWidth === plot.clientWidth)`);
    // Clicks by the page itself: a mouse would change where Tab begins.
    const click = (id) => page.evaluate(`document.getElementById("${id}").click()`);
    if (await page.locator("#operator-toggle").isVisible()) await click("operator-toggle");
    const common = ["who", "take", "reset", "alarms", "source-filter", "note-text", "API"];
    for (const [name, ids] of [["tab-event", ["event-kind"]], ["tab-parameters", ["parameter-timeouts.readout"]]]) {
      await click(name);
      await page.evaluate("window.scrollTo(0, 0)");
      const met = await walk(page, key);
      for (const id of [...common, name, ...ids]) expect(met.includes(id), `${id} is not reached with ${key}`);
    }
  }
  await changesTabs(page);
  expectQuiet(/ 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: everything is reached from the keyboard, and seen when it is");
}

// One tab is selected and reached with Tab; arrow keys, Home and End select another one; its panel alone is shown.
async function changesTabs(page) {
  const isSelected = (name) => `(() => {
    const selected = [...document.querySelectorAll("[role=tab][aria-selected=true]")];
    const shown = [...document.querySelectorAll("[role=tabpanel]:not([hidden])")];
    return selected.length === 1 && selected[0] === document.activeElement && selected[0].id === "tab-${name}" && selected[0].tabIndex === 0
      && shown.length === 1 && shown[0].id === selected[0].getAttribute("aria-controls");
  })()`;
  await page.focus("#tab-parameters");
  for (const [key, name] of [["ArrowRight", "event"], ["ArrowLeft", "parameters"], ["ArrowLeft", "ledger"], ["Home", "event"], ["End", "parameters"]]) {
    await page.keyboard.press(key);
    await until(page, `${key} selects ${name}`, isSelected(name));
  }
}
