// The list of requests: filters that the address holds, rows that stay while their values change, and pages.

import { badge, find, icon, made, state } from "./elements.js";
import { restoreScroll, saveScroll } from "./scroll.js";

const FIELDS = ["q", "status", "model", "key", "warning"];
const OTHERS = ["backend", "endpoint", "since", "before"]; // set by links; each has a button that removes it
const NEW = 200; // pixels from the top of the page beyond which new requests wait
const TYPING = 200; // milliseconds

const address = () => new URLSearchParams(location.search);
const name = (one) => `${one.id} ${one.started}`;
let shown = [], waiting = null, oldest = "", timer = 0;

// The filters of the address, as /admin/exchanges takes them.
export function query() {
    const kept = [...address()].filter(([field, value]) => value && [...FIELDS, ...OTHERS].includes(field));
    return new URLSearchParams(kept);
}

// Begin: load fetches the list again.
export function startList(load) {
    const change = () => {
        write(new FormData(find("filters")));
        load();
    };
    find("filters").addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(change, TYPING);
    });
    find("filters").addEventListener("submit", (event) => {
        event.preventDefault();
        change();
    });
    find("active").addEventListener("click", (event) => {
        const button = event.target.closest("button");
        if (!button) return;
        go({ [button.dataset.field]: "" });
        showFields();
        find("by-q").focus();
        load();
    });
    find("older").addEventListener("click", () => page(oldest, load));
    find("newest").addEventListener("click", () => page("", load));
    find("fresh").addEventListener("click", () => {
        top();
        showList(waiting, true);
    });
    showFields();
}

// Put the filters of the address into the fields, as after Back.
export function showFields() {
    for (const field of FIELDS) choose(find(`by-${field}`), address().get(field) ?? "");
}

function choose(element, value) {
    if (element.tagName === "SELECT" && ![...element.options].some((one) => one.value === value)) element.append(new Option(value, value));
    element.value = value;
}

function write(data) {
    go({ ...Object.fromEntries(FIELDS.map((field) => [field, data.get(field)])), before: "" });
}

function go(changes, push = false) {
    const next = address();
    for (const [field, value] of Object.entries(changes)) {
        if (value) next.set(field, value);
        else next.delete(field);
    }
    const target = `${location.pathname}${next.size ? `?${next}` : ""}`;
    if (push) {
        saveScroll();
        history.pushState(null, "", target);
    } else {
        history.replaceState(history.state, "", target);
    }
    waiting = null;
    shown = [];
}

async function page(before, load) {
    go({ before }, true);
    await load();
    top();
}

function top() {
    scrollTo(0, 0);
    find("exchanges").closest(".scroll").focus({ preventScroll: true });
}

// Show an answer of /admin/exchanges.  all: also requests that are new since the last one, wherever the reader is.
export function showList(answer, all = false) {
    const known = new Set(shown.map(name)), fresh = answer.exchanges.filter((one) => !known.has(name(one)));
    const held = !all && shown.length > 0 && fresh.length > 0 && isRead();
    waiting = held ? answer : null;
    find("fresh").hidden = !held;
    find("fresh").textContent = held ? `${fresh.length} new request${fresh.length === 1 ? "" : "s"}` : "";
    const now = new Map(answer.exchanges.map((one) => [name(one), one]));
    shown = held ? shown.map((one) => now.get(name(one)) ?? one) : answer.exchanges;
    showRows(find("exchanges"), shown);
    showCount(answer);
    restoreScroll();
}

// True while the reader is somewhere in the list, which must not move then.
function isRead() {
    const body = find("exchanges"), selection = getSelection();
    return scrollY > NEW || body.contains(document.activeElement) || (!selection.isCollapsed && body.contains(selection.anchorNode));
}

function showCount({ exchanges, total, matching, keys, models, workers, unreadable }) {
    offer("model", models);
    offer("key", keys);
    const several = workers.configured > 1 ? `, ${workers.heard} of ${workers.configured} workers` : "";
    const skipped = unreadable ? `, ${unreadable} unreadable recordings (see the log)` : "";
    find("count").textContent = `${matching.toLocaleString()} of ${total.toLocaleString()} requests${several}${skipped}`;
    find("active").replaceChildren(...[...FIELDS, ...OTHERS].filter((field) => address().get(field)).map(chip));
    find("none").hidden = exchanges.length > 0;
    find("none-why").textContent = total ? "Remove a filter, or wait for the next request." : "Send a request: it appears here at once.";
    oldest = exchanges.at(-1)?.started ?? "";
    find("older").disabled = matching <= exchanges.length;
    find("newest").disabled = !address().get("before");
}

function offer(field, values) {
    const select = find(`by-${field}`), chosen = address().get(field) ?? "";
    if (document.activeElement === select) return;
    const wanted = [...new Set([...values, chosen])].filter(Boolean).sort();
    if (wanted.join("\n") === [...select.options].slice(1).map((one) => one.value).join("\n")) return;
    select.replaceChildren(select.options[0], ...wanted.map((value) => new Option(value, value)));
    choose(select, chosen);
}

function chip(field) {
    const button = made("button", `${field}: ${address().get(field)}`, "chip");
    button.type = "button";
    button.dataset.field = field;
    button.append(icon("x"), made("span", "Remove the filter", "hidden"));
    return button;
}

function showRows(body, exchanges) {
    const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
    exchanges.forEach((one, place) => {
        const key = name(one), row = rows.get(key) ?? made("tr");
        rows.delete(key);
        row.dataset.key = key;
        renew(row, cells(one));
        const before = body.children[place];
        if (before !== row) body.insertBefore(row, before ?? null);
    });
    for (const row of rows.values()) row.remove();
}

function cells(one) {
    const began = new Date(one.started), tools = made("span", "", "chips"), warnings = made("span", "", "chips");
    tools.append(...one.tools_called.map((tool) => made("span", tool, "tag")));
    warnings.append(...one.error ? [badge(one.error, "bad")] : [], ...one.warnings.map(({ title, severity }) => badge(title, severity === "warn" ? "warn" : "")));
    const time = made("td", began.toLocaleTimeString(), "num quiet nowrap p1");
    time.title = began.toString();
    return [
        time, cell("", state(one)), request(one), model(one),
        cell("p1", one.tools_called.length ? tools : "–"), cell("r p2", seconds(one.first_token)),
        cell("r", seconds(one.duration)), cell("r p1", count(one.input_tokens)), cell("r p1", count(one.output_tokens)),
        cell("p1", warnings),
    ];
}

// The first words of the prompt, which lead to the request if its steps are kept here.
function request(one) {
    const head = made("th", "", "rest"), link = made(one.kept ? "a" : "span", one.prompt || one.id, "clip");
    head.scope = "row";
    if (one.kept) link.href = `/inspector?${new URLSearchParams({ id: one.id, started: one.started })}`;
    const facts = [one.endpoint.replace("/v1/", ""), one.key, one.prompt && one.id, !one.kept && "its steps are not kept here"];
    const brief = [new Date(one.started).toLocaleTimeString(), one.model, one.error];
    head.append(link, note(facts, "clip desk"), note(brief, "phone"));
    return head;
}

const note = (parts, look = "") => made("span", parts.filter(Boolean).join(" · "), `note ${look}`);

function model(one) {
    return cell("p1 nowrap", one.model || "–", note([one.backend, one.format]));
}

function cell(look, ...parts) {
    const one = made("td", "", look);
    one.append(...parts);
    return one;
}

const seconds = (value) => value === null || value === undefined ? "–" : `${value.toFixed(2)} s`;
const count = (value) => value === null || value === undefined ? "–" : value.toLocaleString();

function renew(row, cells) {
    cells.forEach((one, place) => {
        const before = row.children[place];
        if (!before) row.append(one);
        else if (!before.isEqualNode(one)) before.replaceWith(one);
    });
}
