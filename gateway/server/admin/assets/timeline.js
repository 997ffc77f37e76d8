// A request on its way through time: when the first byte came, how much came when, and when nothing did.

const WIDTH = 600, HEIGHT = 60, BARS = 120;
const STALL = 1; // seconds without a byte

// Draws it, and returns what it shows in words.
export function timeline(svg, { times, pieces }, head) {
    const end = Math.max(head.duration, times.at(-1) ?? 0, 0.001);
    const at = (time) => (time / end) * WIDTH;
    const counts = new Array(BARS).fill(0);
    for (const time of pieces) counts[Math.min(BARS - 1, Math.floor((time / end) * BARS))] += 1;
    const most = Math.max(1, ...counts);
    const stalls = gaps(times);
    svg.replaceChildren(
        ...stalls.map(([from, to]) => bar("stall", at(from), at(to) - at(from))),
        ...counts.flatMap((n, place) => n ? [bar("piece", (place * WIDTH) / BARS, WIDTH / BARS - 1, n / most)] : []),
        ...times.slice(0, 1).map((time) => bar("first", Math.min(WIDTH - 2, at(time)), 2)),
    );
    return words(times, pieces, head, stalls);
}

function gaps(times) {
    return times.slice(1).map((time, place) => [times[place], time]).filter(([from, to]) => to - from > STALL);
}

function words(times, pieces, head, stalls) {
    const seconds = (time) => `${time.toFixed(time < 10 ? 2 : 0)} s`;
    const said = [times.length ? `first byte after ${seconds(times[0])}` : head.live ? "no byte yet" : "no byte"];
    const { first_content: first, output_tokens: tokens } = head.line;
    const pace = tokens / (head.duration - first);
    if (tokens && head.duration > first) said.push(`${tokens} tokens, ${pace.toFixed(0)} a second`);
    else if (pieces.length) said.push(`${pieces.length} pieces`);
    const longest = Math.max(...stalls.map(([from, to]) => to - from));
    if (stalls.length) said.push(`silent ${stalls.length} ×, for ${seconds(longest)} at most`);
    return [...said, `duration ${seconds(head.duration)}`].join(" · ");
}

// share: of the height, from the bottom.
function bar(look, x, width, share = 1) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const given = { class: look, x, width, y: HEIGHT * (1 - share), height: HEIGHT * share };
    for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
    return made;
}
