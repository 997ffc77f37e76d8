// The playground: a conversation with a model, beside the bytes of each response.  All text stays text.

import { Frames, newAnswer } from "./dialects.js";
import { ask, forget, keep, key, reason } from "./api_key.js";
import { find, icon, made } from "./elements.js";
import { toast } from "./shell.js";

const STORED = "gateway-playground"; // in sessionStorage: {settings, history}
const FIELDS = ["model", "api", "system", "tools", "temperature", "limit", "more", "stream", "strict"];
const MAX_RAW = 500_000; // characters that are shown of a response
let history = [], running = null, models = [];

// Settings

const field = (name) => find(name);
const value = (name) => (field(name).type === "checkbox" ? field(name).checked : field(name).value);

function store() {
    const settings = Object.fromEntries(FIELDS.map((name) => [name, value(name)]));
    try {
        sessionStorage.setItem(STORED, JSON.stringify({ settings, history }));
    } catch { /* No room: a reload begins anew. */ }
}

function restore() {
    const stored = JSON.parse(sessionStorage.getItem(STORED) ?? "{}");
    history = stored.history ?? [];
    for (const [name, given] of Object.entries(stored.settings ?? {})) {
        if (field(name).type === "checkbox") field(name).checked = given;
        else field(name).value = given;
    }
    return stored.settings?.model;
}

// Return the JSON of a field; undefined if it is empty.  Throws a SyntaxError that names the field.
function parsed(name, check, wanted) {
    const text = value(name).trim();
    field(name).removeAttribute("aria-invalid");
    if (!text) return undefined;
    try {
        const data = JSON.parse(text);
        if (check(data)) return data;
    } catch { /* The message below says what is wanted. */ }
    field(name).setAttribute("aria-invalid", "true");
    field(name).focus();
    throw new SyntaxError(`${field(name).labels[0].textContent} must be ${wanted}.`);
}

function buildBody(api) {
    const number = (name) => (value(name) === "" ? undefined : Number(value(name)));
    const settings = {
        system: value("system").trim(), history, stream: value("stream"), temperature: number("temperature"), limit: number("limit"),
        tools: parsed("tools", Array.isArray, "a JSON array"),
    };
    const more = parsed("more", (data) => data && typeof data === "object" && !Array.isArray(data), "a JSON object");
    return { model: value("model"), ...api.body(settings), ...more };
}

// Models, and the key

async function loadModels(wanted) {
    const answer = await ask("/v1/models");
    const text = await answer.text();
    const closed = answer.status === 401 || answer.status === 403;
    find("closed").hidden = !closed;
    find("play").hidden = closed;
    find("leave").hidden = closed || !key();
    if (closed) {
        find("refusal").textContent = key() ? reason(text) : "";
        forget();
        find("key").focus();
        return;
    }
    models = answer.ok ? JSON.parse(text).data.filter((one) => !one.capabilities?.includes("embeddings")) : [];
    field("model").replaceChildren(...models.map((one) => new Option(one.id)));
    if (models.some((one) => one.id === wanted)) field("model").value = wanted;
    if (!models.length) problem(answer.ok ? "No backend lists a model. The overview has the causes." : reason(text) ?? `The gateway returned HTTP ${answer.status}.`);
    describeModel();
}

function describeModel() {
    const known = models.find((one) => one.id === value("model"));
    const words = [known?.context_length && `${known.context_length.toLocaleString("en")} tokens`, ...(known?.capabilities ?? [])];
    find("about").textContent = words.filter(Boolean).join(" · ");
}

// The conversation

function problem(text) {
    find("problem").textContent = text;
}

function turn(role, note, look = "") {
    const row = made("li", "", look), head = made("p", role, "role"), body = made("div", "", "body");
    head.append(made("span", note, "note"));
    row.append(head, body);
    return [row, body];
}

function showAnswer(answer) {
    const [row, body] = turn("Assistant", answer.model ?? "", answer.error ? "answer failed" : "answer");
    if (answer.reasoning) body.append(fold("Reasoning", answer.reasoning, answer !== history.at(-1) || answer.text));
    if (answer.text) body.append(made("p", answer.text, "say"));
    for (const call of answer.calls) body.append(showCall(call));
    if (answer.error) body.append(made("p", answer.error, "say"));
    if (!body.childElementCount) body.append(made("p", answer.done ? "The response has no text." : "…", "quiet"));
    body.append(facts(answer));
    return row;
}

function fold(title, text, closed) {
    const details = made("details", "", "fold"), summary = made("summary");
    summary.append(icon("right"), title);
    details.append(summary, made("p", text, "say reason"));
    details.open = !closed;
    return details;
}

function showCall({ id, name, args }) {
    const box = made("article", "", "call"), head = made("header"), text = made("pre", pretty(args));
    box.setAttribute("aria-label", `Tool call ${name}`);
    head.append(icon("tool"), made("b", name, "mono"), made("span", id, "quiet mono"));
    box.append(head, text);
    return box;
}

function pretty(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return text; // not yet whole, or no JSON
    }
}

function facts(answer) {
    const line = made("p", "", "facts num"), seconds = (time) => `${time.toFixed(2)} s`;
    if (answer.first !== undefined) line.append(made("span", `first token ${seconds(answer.first)}`));
    if (answer.duration !== undefined) line.append(made("span", `duration ${seconds(answer.duration)}`));
    if (answer.usage) line.append(made("span", `${answer.usage.input ?? "–"} + ${answer.usage.output ?? "–"} tokens`));
    if (answer.finish) line.append(made("span", answer.finish));
    if (find("content").dataset.inspector && answer.request) {
        const link = made("a", "Inspect");
        link.href = `/inspector?${new URLSearchParams({ id: answer.request })}`;
        line.append(link);
    }
    return line;
}

function show() {
    const rows = history.map((one) => {
        if (one.role === "assistant") return showAnswer(one);
        const [row, body] = turn(one.role === "tool" ? "Tool" : "User", one.id ?? "");
        body.append(made("p", one.text, "say"));
        return row;
    });
    const open = running ? [] : unanswered();
    if (open.length) rows.push(toolForm(open));
    find("talk").replaceChildren(...rows);
    find("empty").hidden = rows.length > 0;
}

// Tool calls of the last answer, for which the reader plays the tool.
function unanswered() {
    const last = history.at(-1);
    return last?.role === "assistant" && !last.error ? last.calls : [];
}

function toolForm(calls) {
    const [row, body] = turn("Tool", "you play it"), form = made("form", "", "section");
    form.id = "results";
    for (const { id, name } of calls) {
        const box = made("div", "", "field"), label = made("label", `Result of ${name}`), text = made("textarea", "", "mono");
        Object.assign(text, { id: `result-${id}`, name: id, rows: 3 });
        label.htmlFor = text.id;
        box.append(label, text);
        form.append(box);
    }
    const send = made("p");
    send.append(made("button", calls.length > 1 ? "Send results" : "Send result"));
    form.append(send);
    body.append(form);
    return row;
}

// A request

const randomId = () => `play-${[...crypto.getRandomValues(new Uint8Array(8))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;

function showRequest(path, body, headers) {
    const text = JSON.stringify(body, null, 2), quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;
    find("code-request").textContent = text;
    const given = Object.entries(headers).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)} \\\n`).join("");
    const secret = key() ? '  -H "authorization: Bearer $GATEWAY_KEY" \\\n' : "";
    find("code-curl").textContent = `curl -N ${quoted(location.origin + path)} \\\n${given}${secret}  -d ${quoted(text)}`;
    find("raw").textContent = "";
}

// Send the history, and add the answer to it.
async function request() {
    const { api } = await import(`./${value("api")}.js`), headers = { "content-type": "application/json" };
    const { path, read } = api, body = buildBody(api);
    if (value("strict")) headers["x-gateway-strict"] = "1";
    showRequest(path, body, headers);
    const answer = Object.assign(newAnswer(), { model: body.model, request: randomId() });
    history.push(answer);
    busy(true);
    const began = performance.now(), since = () => (performance.now() - began) / 1000;
    try {
        const options = { method: "POST", body: JSON.stringify(body), signal: running.signal };
        await follow(await ask(path, { ...options, headers: { ...headers, "x-request-id": answer.request } }), answer, read, since);
    } catch (error) {
        answer.error ||= error.name === "AbortError" ? "You stopped the request." : "The gateway closed the connection.";
    }
    Object.assign(answer, { duration: since(), done: true });
    running = null;
    busy(false);
    store();
    show();
}

async function follow(response, answer, read, since) {
    const raw = find("raw").appendChild(new Text(`HTTP ${response.status} ${response.headers.get("content-type") ?? ""}\n\n`));
    const stream = response.headers.get("content-type")?.startsWith("text/event-stream");
    const frames = new Frames(), reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let whole = "", drawing = 0;
    for (let { done, value: text } = await reader.read(); !done; { done, value: text } = await reader.read()) {
        if (raw.length < MAX_RAW) raw.appendData(text);
        if (stream) for (const data of frames.push(text)) read(answer, data);
        else whole += text;
        if (answer.text || answer.reasoning || answer.calls.length) answer.first ??= since();
        drawing ||= requestAnimationFrame(() => {
            drawing = 0;
            find("talk").lastElementChild.replaceWith(showAnswer(answer));
        });
    }
    cancelAnimationFrame(drawing);
    if (stream) return;
    if (response.ok) read(answer, JSON.parse(whole));
    else answer.error = reason(whole) ?? `The gateway returned HTTP ${response.status}.`;
}

function busy(is) {
    find("send").hidden = is;
    find("stop").hidden = !is;
    show();
    if (!is) (find("talk").querySelector("textarea") ?? find("message")).focus({ preventScroll: true });
}

async function sendTurns(turns) {
    const before = history.length;
    history.push(...turns);
    problem("");
    running = new AbortController();
    try {
        await request();
        return true;
    } catch (error) {
        running = null;
        history.length = before;
        problem(error.message);
        show();
        return false;
    }
}

const SUBMITS = {
    "key-form": () => {
        keep(find("key").value);
        loadModels();
    },
    composer: () => {
        const text = find("message").value;
        if (running || !text.trim()) return;
        find("message").value = "";
        sendTurns([{ role: "user", text }]).then((sent) => {
            if (!sent) find("message").value = text;
        });
    },
    results: (form) => sendTurns([...new FormData(form)].map(([id, text]) => ({ role: "tool", id, text }))),
};

const CLICKS = {
    stop: () => running.abort(),
    leave: () => {
        forget();
        location.reload();
    },
    anew: () => {
        running?.abort();
        history = [];
        find("raw").textContent = "";
        problem("");
        store();
        show();
        find("message").focus();
        toast("The conversation is empty.");
    },
};

document.addEventListener("submit", (event) => {
    event.preventDefault();
    SUBMITS[event.target.id]?.(event.target);
});
document.addEventListener("click", (event) => CLICKS[event.target.closest("button")?.id]?.());
document.addEventListener("change", (event) => {
    if (FIELDS.includes(event.target.id)) store();
    if (event.target.id === "model") describeModel();
});
find("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    find("composer").requestSubmit();
});

const wanted = restore() ?? new URLSearchParams(location.search).get("model");
show();
loadModels(wanted);
