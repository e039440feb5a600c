// Seven hundred sources, on a phone and in the dark.
import { join } from "node:path";
import { expect, isInOrder, scratch, start, text, until, watched } from "./harness.mjs";

const rows = `[...document.querySelectorAll("#sources tbody tr")].map((row) => Number(row.cells[0].textContent))`;

export async function many(browser, program, shots) {
  const options = ["--sources", "700", "--rate", "20Hz", "--readout-units", "4", "--builder-units", "2", "--duration", "180s"];
  const run = start(program, ["demo", ...options, "--output", scratch, "--control", "127.0.0.1:0"]);
  const address = await run.line(/dashboard: (http:\S+)/);
  const page = await browser.newPage({ viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  const expectQuiet = watched(page);
  await page.goto(address);
  await until(page, "700 rows", `document.querySelectorAll("#sources tbody tr").length === 700`, 60000);
  await until(page, "rates", `/[1-9]/.test(document.querySelector("#sources tbody tr").cells[5].textContent)`);
  await showsFaults(page);
  await scrolls(page);
  await isInOrder(page);
  await page.evaluate("window.scrollTo(0, 0)");
  await page.screenshot({ path: join(shots, "phone.png") });
  console.log("good: 700 sources on a phone, in the dark");
  await page.setViewportSize({ width: 1400, height: 1000 });
  await sortsAndFilters(page, shots);
  await until(page, "the picture is wide", `document.querySelector("#path svg").viewBox.baseVal.width > 900`);
  await page.evaluate("window.scrollTo(0, 0)");
  await page.screenshot({ path: join(shots, "dark.png"), fullPage: true });
  expectQuiet();
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: sources are sorted and filtered from the keyboard");
}

// Status, missing and lost fragments are visible on a phone without scrolling sideways.
async function showsFaults(page) {
  const heads = await page.$$eval("#sources th", (cells) => cells.slice(0, 4).map((cell) => [cell.textContent, cell.getBoundingClientRect().right <= window.innerWidth]));
  expect(JSON.stringify(heads) === JSON.stringify(["source", "status", "missing", "lost"].map((name) => [name, true])), `the first columns: ${JSON.stringify(heads)}`);
}

async function scrolls(page) {
  const moved = await page.evaluate(async () => {
    const box = document.querySelector("#sources").parentElement;
    box.scrollTop = 10000;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return box.scrollTop;
  });
  expect(moved > 5000, `the table scrolls to ${moved}`);
}

async function sortsAndFilters(page, shots) {
  await page.focus("#sources th button");
  await page.keyboard.press("Enter");
  await until(page, "the last comes first", `${rows}[0] === 699 && document.querySelector("#sources th").getAttribute("aria-sort") === "descending"`);
  await page.fill("#source-filter", "7, 20-22");
  await until(page, "the listed sources", `${rows}.join() === "22,21,20,7"`);
  expect((await page.evaluate(text("source-count"))).startsWith("(4 of 700"), "how many are shown is not told");
  expect(await page.isHidden("#source-counters"), "counters of several sources are shown");
  await page.fill("#source-filter", "7");
  const counted = `[...document.querySelectorAll("#counters tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent))`;
  await until(page, "the counters of the one source that is shown", `${text("counters-title")} === "Counters of source 7" && ${counted}.some(([name, value, help]) => name === "fragments received" && value !== "0" && help !== "")`);
  await page.screenshot({ path: join(shots, "counters.png"), fullPage: true });
  await page.fill("#source-filter", "ru1");
  await until(page, "those of a unit", `${rows}.length === 175`);
  await page.fill("#source-filter", "");
  await page.check("#source-troubled");
  await until(page, "none is in trouble", `${rows}.length < 700`);
  await page.uncheck("#source-troubled");
}
