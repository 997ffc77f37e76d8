// A conversation as rows by role, and a response by itself.  All text stays text.

import { badge, icon, made } from "./elements.js";

const LONG = 1500; // characters that are shown without a fold
const LONGEST = 100_000;

export function showConversation(list, { received, sent, response }) {
    const { messages, tools, readable } = received ?? sent ?? { messages: [], tools: [], readable: true };
    const current = messages.findLastIndex((one) => one.role === "assistant") + 1;
    const system = messages.filter((one) => one.role === "system" || one.role === "developer");
    const others = (some) => some.filter((one) => !system.includes(one));
    list.replaceChildren(
        ...system.map((one) => row(one.role, [...content(one)])),
        ...(tools.length ? [row("tools", [offered(tools)], `${tools.length} offered`)] : []),
        ...earlier(others(messages.slice(0, current))),
        ...others(messages.slice(current)).map((one) => row(one.role, [...content(one)])),
        ...(readable ? [] : [row("request", [made("p", "The body is no JSON object.")])]),
        answer(response),
    );
}

// The response and its end.
export function showResponse(response) {
    const { choices, status, error, message } = response;
    const shown = choices.flatMap((one) => [...choice(one)]);
    if (error) shown.push(badge(`${status} ${error}`, "bad"), made("p", message ?? "", "quiet"));
    return shown.length ? shown : [made("p", status === null ? "No output so far." : "No output.", "quiet")];
}

function answer(response) {
    const item = row("assistant", showResponse(response));
    item.classList.add("answer");
    if (response.error) item.classList.add("failed");
    return item;
}

function* choice({ reasoning, text, refusal, tool_calls: calls, gateway_tools: done, finish_reason: finish }) {
    if (reasoning) yield fold(`Reasoning · ${reasoning.length.toLocaleString()} characters`, [pre(reasoning, "reason")], true);
    if (text) yield long(text);
    if (refusal) yield made("p", `Refusal: ${refusal}`);
    yield* calls.map(call);
    if (done.length) yield fold(`${done.length} tools ran at the gateway`, [pre(JSON.stringify(done, null, 1), "")]);
    const facts = made("p", "", "facts");
    facts.append(made("span", `finish_reason ${finish ?? "–"}`));
    if (!finish) facts.append(badge("no end", "warn"));
    yield facts;
}

function call({ id, name, arguments: words, complete }) {
    const card = made("article", "", "call"), head = made("header");
    card.setAttribute("aria-label", `Tool call ${name}`);
    head.append(icon("tool"), made("b", name, "mono"), made("span", id, "quiet mono"));
    if (complete === false) head.append(badge("arguments incomplete", "warn"));
    card.append(head, pre(pretty(words), ""));
    return card;
}

function* content({ text, reasoning, tool_calls: calls, call_id: of, other }) {
    if (of) yield made("p", `result of ${of}`, "quiet");
    if (reasoning) yield fold("Reasoning", [pre(reasoning, "reason")]);
    if (text) yield long(text);
    yield* calls.map(call);
    if (other.length) yield made("p", `also: ${other.join(", ")}`, "quiet");
}

function earlier(messages) {
    if (!messages.length) return [];
    const inside = made("ol", "", "talk");
    inside.append(...messages.map((one) => row(one.role, [...content(one)])));
    return [row("earlier", [fold(messages.map((one) => one.role).join(", ").slice(0, 200), [inside])], `${messages.length} messages`)];
}

function offered(tools) {
    const list = made("ul");
    list.append(...tools.map(({ name, description, parameters }) => {
        const item = made("li");
        item.append(made("code", `${name}(${Object.keys(parameters.properties ?? {}).join(", ")})`), made("span", description, "note"));
        return item;
    }));
    return fold(tools.map((one) => one.name).join(", ").slice(0, 200), [list]);
}

function row(role, parts, note = "") {
    const item = made("li"), name = made("p", role[0].toUpperCase() + role.slice(1), "role"), body = made("div", "", "body");
    name.append(made("span", note, "note"));
    body.append(...parts);
    item.append(name, body);
    return item;
}

const long = (text) => text.length > LONG ? fold(`${text.slice(0, 160)} …`, [pre(text, "say")]) : pre(text, "say");

export function pre(text, look) {
    const shown = made("pre", text.slice(0, LONGEST) + (text.length > LONGEST ? "\n…" : ""), `wrap ${look}`);
    shown.tabIndex = 0;
    return shown;
}

export function fold(title, parts, open = false) {
    const folded = made("details", "", "fold"), summary = made("summary");
    summary.append(icon("right"), made("span", title));
    folded.append(summary, ...parts);
    folded.open = open;
    return folded;
}

export function pretty(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return text;
    }
}
