// The parts of all pages: the theme, tabs, buttons that copy, the toast, the key "/" for the search field.
// The document has the listeners, so later elements work, too.

import { find, icon } from "./elements.js";

// Theme: auto follows the system

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const ICONS = { auto: "auto", light: "sun", dark: "moon" };
const page = document.documentElement;
const theme = () => page.dataset.theme ?? "auto";

function showTheme() {
    const button = find("theme");
    button.setAttribute("aria-label", `Theme: ${theme()}. Switch to ${NEXT[theme()]}.`);
    button.title = `Theme: ${theme()}`;
    button.replaceChildren(icon(ICONS[theme()]));
}

function switchTheme() {
    const next = NEXT[theme()];
    if (next === "auto") delete page.dataset.theme;
    else page.dataset.theme = next;
    try {
        localStorage.setItem("gateway-theme", next);
    } catch { /* No storage: the choice holds for this page. */ }
    showTheme();
}

// Toast: one line that never takes the focus

let fading = 0;

export function toast(text) {
    clearTimeout(fading);
    find("toast").textContent = text;
    fading = setTimeout(() => find("toast").replaceChildren(), 4000);
}

// Copy: data-copy is the id of the element whose text is copied

async function copy(button) {
    try {
        await navigator.clipboard.writeText(find(button.dataset.copy).textContent);
        toast("Copied.");
    } catch {
        toast("The browser denies access to the clipboard. Select the text and copy it.");
    }
}

// Tabs as WAI-ARIA has them.  A tablist with data-hash keeps its tab in the address.

export function selectTab(tab) {
    const list = tab.closest("[role=tablist]");
    for (const one of list.querySelectorAll("[role=tab]")) {
        one.setAttribute("aria-selected", one === tab);
        one.tabIndex = one === tab ? 0 : -1;
        find(one.getAttribute("aria-controls")).hidden = one !== tab;
    }
    if (list.dataset.hash !== undefined) history.replaceState(history.state, "", `#${tab.id}`);
}

function stepTab(event, tab) {
    const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
    const place = tabs.indexOf(tab), count = tabs.length;
    const next = { ArrowRight: (place + 1) % count, ArrowLeft: (place + count - 1) % count, Home: 0, End: count - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    selectTab(tabs[next]);
    tabs[next].focus();
}

// Reveal: data-reveal is the id of a field with a secret

function reveal(button) {
    const field = find(button.dataset.reveal), hidden = field.type === "password";
    field.type = hidden ? "text" : "password";
    button.setAttribute("aria-pressed", hidden);
}

document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "theme") switchTheme();
    else if (button.dataset.copy) copy(button);
    else if (button.dataset.reveal) reveal(button);
    else if (button.role === "tab") selectTab(button);
});

document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[role=tab]");
    if (tab) stepTab(event, tab);
    const field = document.querySelector("[data-search]");
    if (event.key !== "/" || !field || event.target.closest?.("input, textarea, select")) return;
    event.preventDefault();
    field.focus();
});

showTheme();
const named = location.hash && find(location.hash.slice(1));
if (named?.role === "tab") selectTab(named);
