// The list of requests.  All text stays text.

import { live } from "./live.js";
import { ask, forget, keep, key, reason } from "./api_key.js";
import { find } from "./elements.js";
import { query, showFields, showList, startList } from "./list.js";

const SECONDS = 2; // between two looks
const buttons = live(load, tell);
let timer = 0;

async function get(where, query) {
    const answer = await ask(`${where}?${query}`);
    if (answer.ok) return answer.json();
    const told = reason(await answer.text()) ?? `The gateway returned HTTP ${answer.status}.`;
    if (answer.status === 401 || answer.status === 403) refuse(told);
    else tell(told);
    return null;
}

function refuse(told) {
    find("refusal").textContent = key() ? told : "";
    forget();
    view("closed");
    find("key").focus();
}

function view(name) {
    for (const one of ["closed", "list"]) find(one).hidden = one !== name;
    find("leave").hidden = !key();
    find("following").hidden = name === "closed";
    find("list-title").hidden = name !== "list";
}

function tell(said) {
    find("status").textContent = said;
}

async function load() {
    clearTimeout(timer);
    const asked = location.search;
    let wanted = true;
    try {
        wanted = await loadList();
    } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        tell("The gateway does not respond.");
    }
    if (asked === location.search && wanted && !buttons.paused && !document.hidden) timer = setTimeout(load, SECONDS * 1000);
}

// The list

async function loadList() {
    const asked = location.search, said = await get("/admin/exchanges", query());
    if (!said) return !find("closed").hidden ? false : true;
    if (asked !== location.search) return false;
    view("list");
    showList(said);
    tell(`as of ${new Date().toLocaleTimeString()}`);
    return true;
}

const SUBMITS = { "key-form": () => { keep(find("key").value); load(); }, filters: () => {} };

document.addEventListener("submit", (event) => {
    event.preventDefault();
    SUBMITS[event.target.id]();
});
startList(load);
addEventListener("popstate", () => {
    showFields();
    load();
});
document.addEventListener("visibilitychange", () => document.hidden || load());
load();
