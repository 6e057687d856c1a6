// The page in Firefox: each view in each mode and size, and what a person does by the keyboard.
// node firefox.mjs FIREFOX ADDRESS TOKEN AXE PICTURES < '{"views": [["#/", "Threads"]], "modes": {"light": {}}}'
import { mkdirSync, readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const [executablePath, address, token, axe, pictures] = process.argv.slice(2);
const { views, modes, sizes, approvals, thread } = JSON.parse(readFileSync(0, "utf-8"));
const rules = readFileSync(axe, "utf-8");
const found = { wide: [], rules: [], said: [], foreign: [], keys: [] };
const WAIT = { timeout: 120_000 };
mkdirSync(pictures, { recursive: true });

const shows = (page, selector, text) => page.waitForFunction(
  (where, wanted) => [...document.querySelectorAll(where)].some((one) => one.textContent.includes(wanted)), WAIT, selector, text);

async function opened(browser) {
  const page = await browser.newPage();
  page.on("console", (message) => message.type() === "error" && !/40[14]/.test(message.text()) && found.said.push(message.text()));
  page.on("pageerror", (error) => found.said.push(`${error}`));
  page.on("request", (request) => !request.url().startsWith(`${address}/`) && !request.url().startsWith("data:") && found.foreign.push(request.url()));
  await page.goto(`${address}/ui/`);
  await page.waitForSelector("#token", WAIT);
  await page.type("#token", token);
  await page.keyboard.press("Enter");
  await shows(page, "h1", "Threads");
  return page;
}

async function looked(page, name) {
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) found.wide.push(name);
  const violated = await page.evaluate(async () => (await window.axe.run(document)).violations.map((one) => [one.id, one.nodes[0].html]));
  for (const one of violated) found.rules.push([name, ...one]);
  await page.screenshot({ path: `${pictures}/${name.replaceAll(/\W+/g, "-")}.png` });
}

async function matrix(browser, mode) {
  const page = await opened(browser);
  await page.evaluate(rules);
  for (const [size, viewport] of Object.entries(sizes)) {
    await page.setViewport(viewport);
    for (const [place, heading] of views) {
      await page.evaluate((to) => (location.hash = to), place);
      await shows(page, "h1", heading);
      await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"), WAIT);
      await looked(page, `${heading} ${mode} ${size}`);
      for (const tab of await page.$$("[role=tab]")) {
        await tab.click();
        const about = await tab.evaluate((one) => one.textContent);
        await page.waitForFunction(() => !document.querySelector("[role=tabpanel]").textContent.includes("Loading"), WAIT);
        await looked(page, `${heading} ${about} ${mode} ${size}`);
      }
    }
  }
  await page.close();
}

const focused = (page) => page.evaluate(() => document.activeElement.ariaLabel ?? document.activeElement.textContent.trim());

async function tabTo(page, wanted) {
  for (let count = 0; count < 80; count++) {
    if (wanted.test(await focused(page))) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${wanted}`);
}

async function keys(browser) {
  const page = await opened(browser);
  await page.setViewport({ width: 1280, height: 800 });
  await page.evaluate((to) => (location.hash = to), `#/threads/${thread}`);
  await page.waitForSelector(".steps [aria-selected=true]", WAIT);
  await page.keyboard.press("t");
  await shows(page, "[aria-selected=true].step", "request");
  await page.keyboard.press("2");
  await shows(page, "[role=tabpanel]", "exactly what was sent");
  found.keys.push("request");
  await page.keyboard.press("k");
  await shows(page, "button.runs", "Run the fork");
  await tabTo(page, /^Run the fork/);
  await page.keyboard.press("Enter");
  await shows(page, "h1", "-fork1");
  found.keys.push("fork");
  await page.evaluate((to) => (location.hash = to), "#/approvals");
  await shows(page, "article", "calculate");
  const count = await page.$$eval("article", (all) => all.length);
  await tabTo(page, /^Approve$/);
  for (let nth = 0; nth < count; nth++) {
    await page.keyboard.press("a");
    await page.waitForFunction((left) => document.querySelectorAll("[data-first]").length === left, WAIT, count - nth - 1);
    await page.waitForFunction(() => document.activeElement !== document.body, WAIT);
  }
  await page.waitForFunction(() => !document.querySelector("article"), WAIT);
  found.keys.push(`${count} approvals`);
  await page.evaluate((to) => (location.hash = to), `#/chat/${approvals}`);
  await shows(page, "[role=log]", "Done.");
  await page.type("#say", "Once more.");
  await page.keyboard.press("Enter");
  await shows(page, ".mine", "Once more.");
  found.keys.push("chat");
  await page.close();
}

for (const [mode, extraPrefsFirefox] of Object.entries(modes)) {
  const browser = await puppeteer.launch({ browser: "firefox", executablePath, extraPrefsFirefox, headless: true });
  try {
    await matrix(browser, mode);
    if (mode === Object.keys(modes).at(-1)) await keys(browser); // it answers what waits
  } finally {
    await browser.close();
  }
}
console.log(JSON.stringify(found));
