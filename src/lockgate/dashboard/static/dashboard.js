// Progressive extras: copy buttons, local times, live numbers. Every page works without them.
"use strict";

const told = document.getElementById("told");

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  const text = button.textContent;
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = told.textContent = button.dataset.done;
    } catch {
      told.className = "problem"; // Until then it is for screen readers alone.
      told.textContent = button.dataset.failed;
    }
    setTimeout(() => {
      button.textContent = text;
    }, 2000);
  });
}

// A reload of the page with a new key would send the form again, and create another key.
const created = document.querySelector("[data-location]");
if (created) history.replaceState(null, "", created.dataset.location);

// A second click while the answer is under way would end it unseen.
for (const form of document.querySelectorAll("form[data-once]")) {
  let sent = false;
  form.addEventListener("submit", (event) => {
    if (sent) event.preventDefault();
    sent = true;
  });
  addEventListener("pageshow", () => {
    sent = false; // The browser came back to the form.
  });
}

const language = document.documentElement.lang;
const styles = {
  date: { dateStyle: "medium" },
  time: { dateStyle: "medium", timeStyle: "short" },
};
for (const time of document.querySelectorAll("time[data-shows]")) {
  const options = styles[time.dataset.shows];
  time.title = time.dateTime;
  time.textContent = new Date(time.dateTime).toLocaleString(language, options);
}

// Some sentences have a time within them, such as the note of a full limit.
const UTC = /\d{4}-\d\d-\d\d \d\d:\d\d UTC/;
function local(text, until) {
  return text.replace(UTC, () => new Date(until).toLocaleString(language, styles.time));
}
for (const note of document.querySelectorAll("[data-until]"))
  note.textContent = local(note.textContent, note.dataset.until);

// A date and time is entered in UTC without this script, and in the time zone of the browser with it.
for (const name of document.querySelectorAll("[data-zone]")) {
  const field = document.getElementById(name.dataset.zone);
  const zone = document.getElementById(`${field.id}-zone`);
  const write = () => {
    const minutes = -new Date(field.value).getTimezoneOffset() || 0;
    const two = (number) => String(Math.floor(number)).padStart(2, "0");
    const size = Math.abs(minutes);
    zone.value = `${minutes < 0 ? "-" : "+"}${two(size / 60)}:${two(size % 60)}`;
  };
  name.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  field.addEventListener("input", write);
  field.form.addEventListener("submit", write);
}

const live = document.querySelector("[data-live]");
const ended = document.getElementById("ended");
const EVERY = 5000;

async function refresh() {
  if (document.hidden || !ended.hidden) return;
  const answer = await fetch(live.dataset.live, { credentials: "same-origin" });
  // Each further request would count as one more that is not accepted from this address.
  ended.hidden = answer.status !== 401;
  if (!ended.hidden) return;
  if (!answer.ok) throw new Error(answer.statusText);
  for (const meter of await answer.json()) {
    const shown = live.querySelector(`[data-meter="${CSS.escape(meter.name)}"]`);
    if (!shown) continue;
    shown.className = `meter ${meter.level}`;
    shown.querySelector(".text").textContent = meter.text;
    shown.querySelector(".note").textContent = local(meter.note, meter.until);
    const bar = shown.querySelector("[role=meter]");
    if (!bar || meter.limit === null) continue;
    bar.setAttribute("aria-valuenow", meter.used);
    bar.setAttribute("aria-valuemax", meter.limit);
    bar.setAttribute("aria-valuetext", meter.text);
    bar.querySelector(".fill").setAttribute("width", meter.percent);
  }
}

if (live) {
  const stale = document.getElementById("stale");
  const update = async () => {
    stale.hidden = await refresh().then(
      () => true,
      () => false,
    );
  };
  setInterval(update, EVERY);
  document.addEventListener("visibilitychange", update);
}
