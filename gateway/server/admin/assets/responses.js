// Responses, as dialects.js says.

import { callOf, failed, plain } from "./dialects.js";

export const api = {
    path: "/v1/responses",
    body({ system, tools, history, temperature, limit, stream }) {
        const named = tools?.map((tool) => plain(tool, (one) => ({ type: "function", ...one })));
        const input = history.flatMap(api.items);
        return { instructions: system || undefined, input, tools: named, temperature, max_output_tokens: limit, stream, store: false };
    },
    items({ role, text, id, calls = [] }) {
        if (role === "tool") return [{ type: "function_call_output", call_id: id, output: text }];
        const called = calls.map(({ id: call_id, name, args }) => ({ type: "function_call", call_id, name, arguments: args }));
        return [...(text ? [{ role, content: text }] : []), ...called];
    },
    read(answer, { type, delta, item, item_id: key, response, error, message, output, ...whole }) {
        if (error || type === "error") failed(answer, error ?? { message });
        if (type?.endsWith("output_text.delta")) answer.text += delta;
        if (/reasoning(_summary)?_text\.delta$/.test(type)) answer.reasoning += delta;
        if (type === "response.output_item.added" && item.type === "function_call") {
            callOf(answer, item.id, { id: item.call_id, name: item.name });
        }
        if (type === "response.function_call_arguments.delta") callOf(answer, key, {}).args += delta;
        if (response) api.end(answer, response);
        if (output) api.whole(answer, output, whole);
    },
    end(answer, { status, usage, error, incomplete_details: why }) {
        if (error) failed(answer, error);
        if (usage) answer.usage = { input: usage.input_tokens, output: usage.output_tokens };
        answer.finish = why?.reason ?? status;
    },
    whole(answer, output, rest) {
        api.end(answer, rest);
        for (const { type, id, call_id, name, arguments: args, content, summary } of output) {
            const text = [...(content ?? []), ...(summary ?? [])].map((part) => part.text ?? "").join("");
            if (type === "message") answer.text += text;
            else if (type === "reasoning") answer.reasoning += text;
            else if (type === "function_call") callOf(answer, id, { id: call_id, name }).args = args;
        }
    },
};
