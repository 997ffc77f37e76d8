// The warnings of a request: what each means, where it came, and the texts before and after.

import { badge, made } from "./elements.js";
import { fold, pre } from "./conversation.js";
import { coded, styles } from "./parts.js";

await styles("warnings.css");

// Return the elements.  open(n) shows a recorded entry.
export function warnings({ warnings: shown, ledger, warning_entries: places }, changes, open) {
    const rest = ledger.slice(shown.length);
    const further = rest.length ? [fold(`${rest.length} further warnings`, [made("p", rest.join(", "), "mono")])] : [];
    return [...shown.map((one) => warning(one, places[one.entry], changes[one.entry], open)), ...further];
}

function warning({ title, severity, entry, meaning, action, link }, n, change, open) {
    const item = made("article", "", "warning"), head = made("h3"), acts = made("p", "", "acts");
    head.append(badge(title, severity === "warn" ? "warn" : ""));
    const docs = made("a", "What it means");
    docs.href = link;
    acts.append(docs);
    if (n !== undefined) acts.prepend(jump(n, open), " ");
    item.append(head, made("p", entry, "mono quiet"), coded(meaning), coded(action, "quiet"), acts);
    if (change) item.append(fold("Before and after", [pre(change.before || "–", "block"), pre(change.after || "–", "block")]));
    return item;
}

function jump(n, open) {
    const link = made("a", "Show in the stream");
    link.href = "#stream";
    link.addEventListener("click", () => open(n));
    return link;
}
