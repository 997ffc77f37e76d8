// The phases of a request on a time axis and as a table, and the pace of its output.

import { made } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST = 40; // rows of parts
const STEPS = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600];
const NAMES = { reasoning: "Reasoning", text: "Text", tool_call: "Tool call" };
const LOOKS = { reasoning: "reasoning", text: "text", tool_call: "call" };

export const seconds = (time) => time > 0 && time < .001 ? "< 1 ms" : time < 1 ? `${Math.round(time * 1000)} ms` : `${time.toFixed(time < 10 ? 2 : 1)} s`;

export function showTiming(axis, body, { times, duration, live }) {
    const end = Math.max(times.end ?? duration, .001), rows = [...phases(times, end, live)];
    const step = STEPS.find((one) => end / one <= 5) ?? end / 5;
    const ticks = Array.from({ length: Math.floor(end / step) + 1 }, (_, place) => place * step);
    axis.replaceChildren(...ticks.filter((time) => time < end * .95).map((time, place) => tick(time, end, place % 2)));
    body.replaceChildren(...rows.map((one) => row(one, end)));
}

function* phases({ attempts, parts, prepared, first_token: token, end: over }, end, live) {
    const first = attempts[0];
    yield { name: "Gateway", look: "queue", from: 0, to: first?.started ?? prepared ?? end };
    for (const [place, one] of attempts.entries()) yield* attempt(one, place, attempts.length, end);
    const begun = attempts.at(-1)?.first_byte;
    if (begun != null && token != null && token > begun) yield { name: "Until first token", look: "wait", from: begun, to: token };
    for (const { kind, name, start, end: to } of parts.slice(0, MOST)) {
        yield { name: NAMES[kind], note: name, look: LOOKS[kind], from: start, to };
    }
    if (parts.length > MOST) yield { name: `${parts.length - MOST} further parts`, look: "text", from: parts[MOST].start, to: parts.at(-1).end };
    const last = parts.at(-1)?.end ?? attempts.at(-1)?.ended ?? 0;
    if (!live && over != null && attempts.length) yield { name: "End", look: "queue", from: Math.min(last, over), to: over };
}

function* attempt(one, place, count, end) {
    const at = count > 1 ? `${one.backend}, attempt ${place + 1}` : one.backend;
    if (one.wait > .001) yield { name: "Wait before the attempt", look: "queue", from: one.started - one.wait, to: one.started };
    const sent = one.sent ?? one.started;
    if (sent - one.started > .001) yield { name: "Queue", note: at, look: "queue", from: one.started, to: sent };
    if (one.connected != null) yield { name: "Connect", note: at, look: "queue", from: sent, to: one.connected };
    const from = one.connected ?? sent, to = one.first_byte ?? one.ended ?? end;
    const failed = one.error || one.status >= 400;
    const note = failed ? `${at}: ${one.status ?? ""} ${one.error ?? ""}` : at;
    yield { name: one.first_byte == null ? "Until the end" : "Until first byte", note, look: failed ? "bad" : "wait", from, to };
}

function row({ name, note = "", look, from, to }, end) {
    const item = made("tr"), title = made("th", name), bar = made("td"), svg = document.createElementNS(SVG, "svg");
    title.scope = "row";
    title.append(made("span", note, "note"));
    const width = Math.max(.4, ((to - from) / end) * 100);
    svg.append(shape("rect", { class: `f-${look}`, x: `${Math.min(99.6, (from / end) * 100)}%`, y: 9, width: `${width}%`, height: 10, rx: 2 }));
    svg.setAttribute("aria-hidden", "true");
    bar.append(svg);
    item.append(title, bar, made("td", seconds(to), "r t quiet"), made("td", seconds(Math.max(0, to - from)), "r t"));
    return item;
}

function tick(time, end, odd) {
    const made = shape("text", { x: `${(time / end) * 100}%`, y: 16, class: time ? odd ? "odd" : "" : "from" });
    made.textContent = time ? seconds(time) : "0";
    return made;
}

function shape(name, given) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
    return made;
}

// The pace

const WIDTH = 600, HEIGHT = 60;

// Draw the pieces and the silences; return a description.
export function timeline(svg, head) {
    const { bars, first_byte: first, silences } = head.times.pace, end = Math.max(head.duration, .001);
    const at = (time) => (time / end) * WIDTH, most = Math.max(1, ...bars), width = WIDTH / bars.length;
    svg.replaceChildren(
        ...silences.map(([from, to]) => bar("stall", at(from), at(to) - at(from))),
        ...bars.flatMap((count, place) => count ? [bar("piece", place * width, width - 1, count / most)] : []),
        ...first === null ? [] : [bar("first", Math.min(WIDTH - 2, at(first)), 2)],
    );
    return describe(head);
}

function describe({ duration, line, live, times: { pace: { bars, first_byte: byte, silences } } }) {
    const words = [byte !== null ? `first byte after ${brief(byte)}` : live ? "no byte yet" : "no byte"];
    const { first_content: first, output_tokens: tokens } = line, pieces = bars.reduce((sum, one) => sum + one, 0);
    if (tokens && duration > first) words.push(`${tokens} tokens, ${(tokens / (duration - first)).toFixed(0)} a second`);
    else if (pieces) words.push(`${pieces} pieces`);
    const longest = Math.max(...silences.map(([from, to]) => to - from));
    if (silences.length) words.push(`silent ${silences.length} ×, for ${brief(longest)} at most`);
    return [...words, `duration ${brief(duration)}`].join(" · ");
}

const brief = (time) => `${time.toFixed(time < 10 ? 2 : 0)} s`;

// share: of the height, from the bottom.
function bar(look, x, width, share = 1) {
    return shape("rect", { class: look, x, width, y: HEIGHT * (1 - share), height: HEIGHT * share });
}
