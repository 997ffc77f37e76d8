// The scroll position of a page whose content comes after it: Back and a reload return to it.

const PLACE = "gateway-scroll"; // in sessionStorage: positions by address
const MAX = 50; // addresses
const positions = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
const returned = ["reload", "back_forward"].includes(performance.getEntriesByType("navigation")[0]?.type);
let wanted = returned ? positions[location.search] : undefined;

// Keep the position at the present address.
export function saveScroll() {
    delete positions[location.search];
    positions[location.search] = scrollY;
    sessionStorage.setItem(PLACE, JSON.stringify(Object.fromEntries(Object.entries(positions).slice(-MAX))));
}

// Return to the position, once, when the content is there.
export function restoreScroll() {
    if (wanted !== undefined) scrollTo(0, wanted);
    wanted = undefined;
}

history.scrollRestoration = "manual"; // the browser would try it before the content is there
addEventListener("pagehide", saveScroll);
addEventListener("popstate", () => {
    wanted = positions[location.search];
});
