"""Hostile strings and conversations for tokenizers and chat templates; deterministic."""

import random

PIECES = [
    "", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x00", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "\u200b", "\u200d", "\u2028", "\u3000", "\ufeff", "\ufffd",
    "a", "Hello", " hello", "HELLO", "don't", "we'll", "'s", "I'VE", "naïve", "na\u0308ive", "ﬁ", "Ǆ", "ß", "İ", "ſ", "Å", "A\u030a", "ǆ",
    "Ελληνικά", "русский", "العربية", "עברית", "हिन्दी", "ไทย", "한국어", "한국어", "日本語", "中文字符", "𠮷", "ｆｕｌｌ", "①②", "½", "x²",
    "😀", "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "🦙🦙", "e\u0301\u0301\u0301", "Z͑ͫ̓a̴l͇g̱o̭", "\U0010ffff", "\ue000", "\uf8fe0\uf8fc",
    "0", "1", "12", "123", "1234", "3.14159", "-1e-9", "1,000,000", "0x1F", "٣٤٥", "2024-01-31",
    "<|im_start|>", "<|im_end|>", "<|im_end|", "<|endoftext|>", "<|im_start|>assistant\n", "</s>", "<s>", "<think>", "</think>", "<repo_name>", "<|return|>",
    "def f(x):\n\treturn x  # c\n", "{\"a\": [1, 2.0, null]}", "{{ x }}", "{% raw %}", "{# c #}", "{% generation %}", "\\n", "\\u0041", "'\"`", "\"quoted\"",
    "https://example.org/a?b=c&d=%20", "a@b.c", "......", "----", "!!!???", "====\n====", "<b>&amp;</b>", "   trailing   ", "\n\n\n lead", "a\n \n b",
    "tab\tbetween", "a" * 70, "ab " * 30, " " * 33, "\n" * 9, "🦙" * 9, "1" * 40, "ÿ", "\u0378", "ᠠ", "\u1680",
]


def strings(count=400, seed=1):
    """Every piece alone, then joins of two to six pieces."""
    rng = random.Random(seed)
    out = list(dict.fromkeys(PIECES))
    while len(out) < count:
        out.append("".join(rng.choice(PIECES) for _ in range(rng.randint(2, 6))))
    return out


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather in a city, \"now\" & <later>", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Stadt – größer"}, "days": {"type": "integer", "enum": [1, 2, 3]},
                                         "scale": {"type": "number", "default": 1.5}}, "required": ["city"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def conversations(count=120, seed=2, pieces=PIECES):
    """[(messages, tools)]: user and assistant turns in turn, some with a system message, reasoning, tool calls."""
    rng = random.Random(seed)
    text = lambda: "".join(rng.choice(pieces) for _ in range(rng.randint(1, 4))) or "x"
    out = []
    for i in range(count):
        messages = []
        if rng.random() < 0.5:
            messages.append({"role": "system", "content": text()})
        for _ in range(rng.randint(1, 4)):
            messages.append({"role": "user", "content": text()})
            answer = {"role": "assistant", "content": text()}
            if rng.random() < 0.2:
                answer[rng.choice(["reasoning_content", "reasoning", "thinking"])] = text()
            if rng.random() < 0.15:
                answer["content"] = "<think>\n" + text() + "\n</think>\n\n" + text()
            messages.append(answer)
        tools = None
        if i % 4 == 3:
            tools = TOOLS
            call = {"role": "assistant", "content": rng.choice(["", text()]), "tool_calls": [
                {"type": "function", "id": "abc123def", "function": {"name": "get_weather", "arguments": {"city": text(), "days": 2, "scale": 1e-7, "deep": {"a": [True, None, 1.0]}}}}]}
            messages += [{"role": "user", "content": text()}, call, {"role": "tool", "content": text(), "name": "get_weather", "tool_call_id": "abc123def"},
                         {"role": "assistant", "content": text()}]
        if rng.random() < 0.3:
            messages.append({"role": "user", "content": text()})
        if rng.random() < 0.2:
            messages[0]["name"] = None
        out.append((messages, tools))
    return out


# One construct each; rendered with TEMPLATE_MESSAGES. What minijinja and Jinja2 might see differently.
TEMPLATES = [
    '{{ messages }}',
    '{{ messages[0] }}',
    '{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1+0.2 }} {{ 3/2 }} {{ 4/2 }} {{ 7//2 }} {{ 2**10 }} {{ 1e22 }} {{ -0.0 }}',
    '{{ true }} {{ none }} {{ false }} {{ undefined_thing }}',
    '{{ [1,\'a\',"it\'s",none,true,1.5] }}',
    '{{ (1,2) }} {{ (1,) }} {{ () }} {{ {} }} {{ [] }}',
    "{{ {'a':1,'b':{'c':[1,2]}} | tojson }}",
    "{{ {'b':1,'a':'\xfc<>&\\''} | tojson(ensure_ascii=true) }}",
    "{{ {'b':1,'a':2} | tojson(indent=2,sort_keys=true) }}",
    '{{ [1,[],{}] | tojson(indent=4) }}',
    "{{ {'a':[1,2]} | tojson(separators=(',',':')) }}",
    '{{ 1.0|tojson }} {{ 1e-7|tojson }} {{ 1e20|tojson }} {{ 12345678901234567890|tojson}}',
    "{{ ('a' ~ 1.0 ~ none ~ true ~ {'a':1.5} ~ ['x']) }}",
    "{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',',1) }} {{ 'a,b,c'.rsplit(',',1) }} {{ 'a b c'.rsplit(none,1) }} {{ ' a  b '.split(' ') }}",
    "{{ ' \x1c\x1dx\x1f '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\u200bx'.strip() }}|{{ 12|trim }}|{{ none|trim }}|{{ ' a '|trim }}",
    "{{ 'abc'.find('c') }} {{ 'abc'.index('b') }} {{ 'a-b'.partition('-') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
    "{{ 'a\r\nb\x0bc\u2028d\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}",
    '{{ \'hello world\'.title() }} {{ \'hELLO\'.capitalize() }} {{ \'\xdf\'.upper() }} {{ \'Hello\'|lower }} {{ "they\'re".title() }}',
    "{{ none is iterable }} {{ {} is sequence }} {{ 'a' is sequence }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ {} is mapping }} {{ [] is mapping }} {{ undefined_x is sequence }} {{ undefined_x is iterable }} {{ (1,) is sequence }} {{ {}.keys() is sequence }}",
    "{{ messages | length }} {{ messages|map(attribute='role')|list }} {{ messages|map(attribute='role')|join(', ') }}",
    '{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}',
    '{% for k,v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}',
    "{{ messages[-1]['content'][:3] }} {{ messages[::-1][0].role }} {{ 'abcdef'[1:-1] }} {{ 'abc'[::-1] }}",
    '{{ messages[0].foo is defined }} {{ messages[0].foo }} {{ messages[0].foo.bar }}',
    "{{ 'x' in undefined_y }}",
    '{% for a in undefined_y %}x{% endfor %}ok',
    '{{ undefined_y|length }}',
    "{{ undefined_y + 'a' }}",
    "{{ 'a' + none }}",
    "{{ 'a' + 1 }}",
    "{{ 'a' * 3 }} {{ [1]+[2] }}",
    '{% if messages[0].content is string %}s{% endif %}{{ 5 is number }}{{ 5.0 is float }}{{ true is boolean }}{{ true is number }}{{ true is integer}}{{ 5 is integer }}{{ none is none }}',
    "{{ raise_exception('no ' + 'way') }}",
    "{{ {'a':1}|tojson|string }} {{ {'a':1.0}|string }} {{ [1,2]|string|length }}",
    "{{ {'a': 1}.get('b') }} {{ {'a':1}.get('b','d') }}",
    "{{ {'a': 1}|items|list }} {{ {'b':1,'a':2}|dictsort }}",
    '{% macro f(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ f(1) }}{{ f(1,y=3) }}',
    'a\n{% if true %}\n  b\n{% endif %}\n  {%- if true %} c {% endif -%}  \n d\n',
    "  {# c #}\n x {{- ' y ' -}} z\n",
    '{% for i in range(5) %}{% if i==1 %}{% continue %}{% endif %}{% if i==3 %}{% break %}{% endif %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.previtem }}{% endfor %}',
    "{{ [3,1,2]|sort }} {{ [1,2,3]|reverse|list }} {{ [1,2]|first }} {{ [1,2]|last }} {{ 'abc'|first }} {{ [1,1,2]|unique|list }} {{ messages|selectattr('role','equalto','user')|list|length }} {{ messages|rejectattr('role','eq','user')|list|length }}",
    "{{ '%s-%d'|format('a',3) }} {{ '{} {}'.format(1,'b') }} {{ 'abc'|replace('b','x') }} {{ 'a'|upper }} {{ 'abc'|indent(2) }} {{ 'a\nb'|indent(2) }} {{ 'a\nb'|indent(2,true) }}",
    "{{ 1 if false }}|{{ 'x' if true else 'y' }}|{{ not true }}|{{ 1 == 1.0 }}|{{ '1' == 1 }}|{{ 'a' < 'b' }}",
    '{{ 10 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 7 }} {{ 2 ** -1 }}',
    "{{ 'a'.isdigit() }}{{ '12'.isdigit() }}{{ 'abc'.isalpha() }}{{ 'A'.isupper() }}{{ ' '.isspace() }}",
    "{{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x','c')) }}{{ 'banana'.count('a') }}{{ 'abc'.replace('','-') }}{{ 'aaa'.replace('a','b',2) }}",
    "{{ ', '.join(['a','b']) }}{{ ''.join('abc') }}",
    "{{ ['a','b']|join }} {{ [1,2.0,none]|join(', ') }}",
    '{% set x %} hi {{ 1 }} {% endset %}{{ x|trim }}',
    '{% filter upper %}abc{% endfilter %}',
    '{{ messages|tojson }}',
    '{{ messages|tojson(indent=2) }}',
    '{{ dict(a=1,b=2) }} {{ dict(a=1)|tojson }}',
    '{{ \'\\n\\t\\\'x\' }} {{ "\\u00e9" }} {{ \'a\\\\b\' }}',
    '{{ [\'a\\nb\', \'\xe9\', \'\\x00\', \'\\u200b\', \'\U0001f600\', \'\\xa0\', \'"\', "\'\\""] }}',
    '{{- bos_token }}{{ eos_token }}{{ unk_token is defined }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}',
    "{{ 3.7|int }} {{ '12'|int }} {{ 'x'|int(5) }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ '1.5'|float }}",
    "{{ messages[0]|length }} {{ messages[0]['role'] }} {{ messages[0].role }} {{ messages[0]['nope'] is undefined }}",
    '{{ messages[99] is defined }}{{ messages[99] }}',
    "{{ 'a'.nope() }}",
    "{{ x | default('d') }} {{ none|default('d') }} {{ ''|default('d', true) }} {{ false|default('d',true) }}",
    '{% generation %}a{% endgeneration %}',
    'x {%- generation -%} a {%- endgeneration -%} y',
    '{%+ generation +%}\n a\n{%+ endgeneration +%}\nb',
    'x\n  {% generation %}\n a\n  {% endgeneration %}\nb',
    '{%generation%}q{%endgeneration%}',
    '{%\n- generation %}q{% endgeneration %}',
    "{# {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}{% generation %}q{% endgeneration %}",
    '{% set ns=namespace(a=1) %}{% generation %}{% set ns.a=2 %}{% set b=1 %}{% endgeneration %}{{ ns.a }}{{ b is defined }}',
    '{% for m in messages %}{% generation %}{% if loop.first %}{{ m.content }}{% endif %}{% endgeneration %}{% endfor %}',
    "{{ {'a': {'b': 1}} }}{{ {'a':'}}'} }}",
    'line1\r\nline2\r\n{% if true %}\r\nx\r\n{% endif %}\r\n',
    "{{ '\x00' }}",
    '{{ [1,2,3][1:] }} {{ [1,2,3][-1] }} {{ (messages|length) - 1 }}',
    "{{ {'a':1} == {'a':1} }} {{ [1,2] == [1,2] }} {{ (1,2) == [1,2] }}",
    "{{ 'a' ~ 'b' | upper }}",
    '{{ messages[0].content | string | length }}',
    "{{ '\xe9'|length }} {{ '\U0001f600'|length }} {{ '\U0001f468\u200d\U0001f469'[0] }}",
    "{{ ['b','a']|sort(reverse=true) }} {{ 'B' in ['a','B'] }} {{ 'k' in {'k':1} }} {{ 2 not in [1] }}",
    '{{ namespace(a=[1]).a }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}',
    "{{ [{'n':'x','v':1},{'n':'y','v':2}]|map(attribute='v')|sum }}{{ [1,2,3]|max }}{{ [1,2]|min }}",
    '{{ range(3)|list }}{{ range(1,6,2)|list }}',
    "{{ 'abc'|list }}{{ {'a':1}|list }}",
    "{{ '<b>'|e }} {{ '<b>'|safe }} {{ '<b>'|escape }}",
    "{{ '  x'.lstrip() }}|{{ 'x  '.rstrip() }}|{{ 'x\n\n'.rstrip('\n') }}|",
    "{{ messages[0].content.split('\n')[0] }}",
    '{{ 1_000 }} {{ 0x1f }}',
    '{{ messages is iterable and messages is not string and messages is not mapping }}',
    "{{ 'A'.lower() in 'abc' }} {{ ('a','b')[0] }}",
    "{{ [1.5, 2e-7]|string }} {{ {'x': none, 'y': true}|string }}",
    "{{ 'x'|string is string }}{{ 3|string }}{{ none|string }}{{ true|string }}",
    '{%- for x in [1,2] recursive -%}{{ x }}{%- else -%}none{%- endfor -%}',
    "{{ [[1,2],[3]]|map('length')|list }} {{ ['a','b']|map('upper')|list }}",
    '{% if false %}{% elif true %}e{% endif %}',
    '{{ messages[0].items()|list }} {{ messages[0].keys()|list }} {{ messages[0].values()|list }}',
    '{{ -1|abs }} {{ (-1)|abs }}',
    "{{ '' or 'x' }} {{ 0 or none }} {{ [] and 1 }} {{ 'a' and 'b' }}",
    "{{ strftime_now('%d %b %Y %A %B %j %H:%M:%S %-d %I %p') }}",
]

TEMPLATE_MESSAGES = [
    {"role": "user", "content": "Hi\nthere 'q' \"d\" \u00e9 \U0001f600"},
    {"role": "assistant", "content": "A", "n": 1.0, "d": {"x": [1, None, True, 2.5e-9, 12345678901234567890]}},
]

# Written for the tests: the habits of real templates in a few lines each.
CHAT_TEMPLATES = {
    "chatml": (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] | default('', true) | trim }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "tagged": (
        "{%- for message in messages %}\n"
        "    {%- if message.role == 'assistant' %}\n"
        "        {{- '<|im_start|>assistant\\n' }}{%- generation %}{{- message.content or '' }}{{- '<|im_end|>' }}{%- endgeneration -%}{{- '\\n' }}\n"
        "    {%- else %}\n"
        "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
        "    {%- endif %}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    # Puts an empty think block before the last answer, drops the reasoning of earlier ones.
    "thinking": (
        "{%- for message in messages %}\n"
        "    {{- '<|im_start|>' + message.role + '\\n' }}\n"
        "    {%- set content = message.content or '' %}\n"
        "    {%- if message.role == 'assistant' %}\n"
        "        {%- set reasoning = message.reasoning_content or '' %}\n"
        "        {%- if '</think>' in content %}\n"
        "            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
        "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
        "        {%- endif %}\n"
        "        {%- if loop.last %}{{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}\n"
        "    {%- endif %}\n"
        "    {{- content + '<|im_end|>\\n' }}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n"
        "    {{- '<|im_start|>assistant\\n' }}\n"
        "    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\n"
        "{%- endif %}"
    ),
    # The generation prompt opens a block that finished answers lack.
    "opens_think": (
        "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}<|user|>{{ message.content }}{% elif message.role == 'assistant' %}"
        "<|assistant|>{{ message.content.split('</think>')[-1] }}<|im_end|>{% else %}{{ message.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
    ),
    "tools": (
        "{%- if tools %}{{- '<|im_start|>system\\n# Tools' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"
        "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}"
        "{%- for call in message.tool_calls or [] %}{{- '<tool_call>' }}{{- call.function | tojson }}{{- '</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    ),
}
