// Messages, as dialects.js says.

import { callOf, failed, object, plain } from "./dialects.js";

const LIMIT = 4096; // Messages need some limit

export const api = {
    path: "/v1/messages",
    body({ system, tools, history, temperature, limit, stream }) {
        const named = tools?.map((tool) => plain(tool, ({ name, description, parameters }) => ({ name, description, input_schema: parameters ?? { type: "object" } })));
        const turns = [];
        for (const turn of history) {
            const role = turn.role === "assistant" ? "assistant" : "user", last = turns.at(-1);
            if (last?.role === role) last.content.push(...api.blocks(turn));
            else turns.push({ role, content: api.blocks(turn) });
        }
        return { system: system || undefined, messages: turns, tools: named, temperature, max_tokens: limit ?? LIMIT, stream };
    },
    blocks({ role, text, id, calls = [] }) {
        if (role === "tool") return [{ type: "tool_result", tool_use_id: id, content: text }];
        const used = calls.map(({ id, name, args }) => ({ type: "tool_use", id, name, input: object(args) }));
        return [...(text ? [{ type: "text", text }] : []), ...used];
    },
    read(answer, { type, index, content_block: block, delta, usage, error, content, stop_reason: reason, message }) {
        if (error) failed(answer, error);
        if (type === "content_block_start") api.block(answer, block, index);
        if (delta?.text) answer.text += delta.text;
        if (delta?.thinking) answer.reasoning += delta.thinking;
        if (delta?.partial_json) callOf(answer, index, {}).args += delta.partial_json;
        const counted = usage ?? message?.usage;
        if (counted) answer.usage = { input: counted.input_tokens ?? answer.usage?.input, output: counted.output_tokens };
        answer.finish = delta?.stop_reason ?? reason ?? answer.finish;
        (content ?? []).forEach((one, place) => api.block(answer, one, place));
    },
    block(answer, { type, id, name, input, text, thinking }, place) {
        answer.text += text ?? "";
        answer.reasoning += thinking ?? "";
        if (type !== "tool_use") return;
        const call = callOf(answer, place, { id, name });
        if (Object.keys(input ?? {}).length) call.args = JSON.stringify(input);
    },
};
