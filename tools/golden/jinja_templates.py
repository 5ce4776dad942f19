# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Templates for tests/golden/jinja/cases.json, written for this file in the manner of the families' chat templates."""

CASES = [
    (
        "tools in a system block, thoughts of earlier answers dropped",
        """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    ),
    (
        "dates, a first user message with tools, JSON with an indent",
        """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools is not none and messages | length != 0 %}
    {%- set first_user_message = messages[0]['content'] %}
    {%- set messages = messages[1:] %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    ),
    (
        "macros that write types, with keywords and defaults",
        """{%- macro render_type(spec, required=[], depth=0) -%}
    {%- if spec.type == "array" -%}
        {{ render_type(spec['items'], depth=depth + 1) }}[]
    {%- elif spec.type is sequence and spec.type is not string -%}
        {{ spec.type | join(" | ") }}
    {%- elif spec.enum -%}
        {{ '"' ~ spec.enum | join('" | "') ~ '"' }}
    {%- elif spec.type == "object" -%}
        {{- "{" -}}
        {%- for name, inner in (spec.properties or {}).items() %}
            {{- name ~ ("" if name in required else "?") ~ ": " ~ render_type(inner, required=inner.required or [], depth=depth + 1) }}
            {%- if not loop.last %}{{ ", " }}{% endif -%}
        {%- endfor -%}
        {{- "}" -}}
    {%- else -%}
        {{ spec.type or "any" }}
    {%- endif -%}
{%- endmacro -%}
{%- macro block(role) %}<|start|>{{ role }}<|message|>{{ caller() }}<|end|>{% endmacro -%}
{%- if tools -%}
{% call block('developer') %}
# Tools
{% for tool in tools %}
{%- set f = tool.function %}
// {{ f.description }}
type {{ f.name }} = (_: {{ render_type(f.parameters, required=f.parameters.required or []) }}) => any;
{% endfor %}
{% endcall %}
{%- endif -%}
{% for m in messages -%}
    {%- if m.role == 'assistant' and m.tool_calls is defined and m.tool_calls %}
        {%- for c in m.tool_calls %}
            {%- call block('assistant to=functions.' ~ c.function.name) %}{{ c.function.arguments | tojson }}{% endcall %}
        {%- endfor %}
    {%- else %}
        {%- call block(m.role) %}{{ m.content if m.content is string else (m.content | map(attribute='text') | join('')) }}{% endcall %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
""",
    ),
    (
        "tags on their own lines, loops left early, sets in blocks",
        """{# whitespace is what this one is about #}
{% set ns = namespace(n=0, seen=[]) %}
{% for m in messages if m.role != 'system' %}
  {% if m.role == 'tool' %}
    {% continue %}
  {% endif %}
  {% set line %}
    {{ loop.index }}/{{ loop.length }} {{ m.role | title }}: {{ (m.content or '') | string | trim | replace('\\n', ' ') | upper }}
  {% endset %}
  {% set ns.n = ns.n + 1 %}
  {% set ns.seen = ns.seen + [m.role] %}
{{ line | trim }}
  {%+ if ns.n >= 3 %}
    {% break %}
  {% endif %}
{% else %}
nobody
{% endfor %}
{{ ns.seen | unique | join(',') }} {{ ns.seen }} {{ '%03d|%-4s|' % (ns.n, 'x') }}
{% filter indent(2, true) %}
{{ messages | map(attribute='role') | list }}
{{ messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | select('string') | list | length }}
{% endfilter %}
{%- raw %} {{ as it is }} {% endraw -%}
{% generation %}{{ eos_token }}{% endgeneration %}
""",
    ),
    (
        "system text kept for the last user message, roles checked",
        """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    ),
    (
        "contents in parts, roles in turn",
        """{{ bos_token }}
{%- set first_prefix = messages[0]['content'] + '\\n\\n' if messages[0]['role'] == 'system' and messages[0]['content'] is string else '' -%}
{%- set rounds = messages[1:] if messages[0]['role'] == 'system' else messages -%}
{%- for message in rounds -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}
""",
    ),
    (
        "values as Python prints them",
        """{{ messages[0] }} {{ tools[0].function.parameters.properties.items() | list if tools else {} }}
{{ [1.0, 2e20, 1e-7, -0.0, 7 // 2, -7 // 2, -7 % 3, 7 / 2, 2 ** 10, true, none, 'a\\'b', "q\\"", (1,), ()] }}
{{ {'a': [1, {'b': none}], 2: 'x'} | tojson }} {{ {'b': 1, 'A': 2} | dictsort }} {{ 'x' * 3 ~ 1 ~ none }}
{{ messages | map(attribute='role') | map('capitalize') | join('/') }} {{ range(2, 9, 3) | list }} {{ range(3) }}
{{ "{:>6}|{:<4}|{:^5}|{:05.1f}|{!r}|{k}".format('a', 'b', 'c', 2.25, 'd', k=1) }} {{ '%s-%5.2f' | format('z', 1.005) }}
{{ 'line one\\nline two' | indent(2) }} {{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ '12' | int + 1 }} {{ 'x' | int(5) }} {{ '1e3' | float }}
{{ messages | groupby('role') | map(attribute=0) | list }} {{ [3, 1, 2] | sort(reverse=true) }} {{ ['b', 'A'] | sort }} {{ [1, 2, 3, 4, 5] | batch(2, 0) | list }}
{{ undefined_thing is defined }} {{ undefined_thing | default('d') }} {{ '' | default('e', true) }} {{ 'ß' | upper }} {{ 'ÄÖ' | lower }} {{ 'o\\'neil-smith x' | title }}
""",
    ),
    (
        "markup: what is added to a safe text is escaped",
        """{{ "Use '"|safe + messages[0].role + "'\n" }}{{ '<b>' + '<i>'|safe }}{{ '<'|e + '>' }}{{ '<'|e|e }}{{ '<'|e|forceescape }}
{%- set m = '<u>'|safe %}{{ m ~ '<x>' }}{{ m + m }}{{ (m + '"') + '&' }}{{ m | upper }}{{ m == '<u>' }}{{ m|safe + '<' }}
{%- for t in tools or [] %}{{ '* '|safe + t.function | tojson }}{% endfor %}
""",
    ),
]
