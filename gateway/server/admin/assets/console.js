// Keeps a page as it is now: fetches it again and again, with the key if one is needed, and changes what is new in it.

import { ask, forget, keep, key, reason } from "./api_key.js";
import { find } from "./elements.js";
import { live } from "./follow.js";

const SECONDS = 2;
// The one place where text becomes a document: what the gateway has rendered, in which all else is escaped.
const html = { createHTML: (text) => text };
const trusted = window.trustedTypes ? window.trustedTypes.createPolicy("console", html) : html;

const head = live(load, tell);
let timer = 0;

async function load() {
    clearTimeout(timer);
    try {
        const answer = await ask(location.pathname + location.search);
        const text = await answer.text();
        if (answer.ok) show(text);
        else refuse(answer.status, text);
    } catch {
        tell("The gateway does not respond.");
    }
    follow();
}

function follow() {
    clearTimeout(timer);
    const wanted = find("content").dataset.view !== "key-form" && !head.paused && !document.hidden;
    if (wanted) timer = setTimeout(load, SECONDS * 1000);
}

function show(text) {
    const now = new DOMParser().parseFromString(trusted.createHTML(text), "text/html");
    const before = find("content"), after = now.getElementById("content");
    if (before.dataset.view !== after.dataset.view) {
        before.replaceWith(after);
        after.focus();
    } else {
        for (const one of now.querySelectorAll("[data-live]")) renew(find(one.id), one);
    }
    buttons();
    if (find("content").dataset.view !== "key-form" && !head.paused) tell(`as of ${new Date().toLocaleTimeString()}`);
}

function renew(before, after) {
    if (before.contains(document.activeElement) || before.isEqualNode(after)) return; // what has the focus stays
    before.replaceChildren(...after.childNodes);
}

function refuse(status, text) {
    if (status !== 401 && status !== 403) {
        tell(`The gateway returned HTTP ${status}.`);
        return;
    }
    forget();
    if (!find("key-form")) {
        location.reload();
        return;
    }
    find("refusal").textContent = reason(text) ?? `The gateway returned HTTP ${status}.`;
    find("key").focus();
}

function tell(text) {
    (find("status") ?? find("refusal")).textContent = text;
}

function buttons() {
    find("leave").hidden = !key();
}

document.addEventListener("submit", (event) => {
    event.preventDefault();
    keep(find("key").value);
    find("refusal").textContent = "";
    load();
});

document.addEventListener("visibilitychange", follow);

document.addEventListener("change", ({ target }) => {
    if (target.id !== "model") return;
    history.replaceState(null, "", `?${new URLSearchParams({ model: target.value })}${location.hash}`);
    load();
});

buttons();
if (key()) load();
else follow();
