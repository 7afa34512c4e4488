"""Renders the templates below with transformers' own environment and prints golden.json.

Run with a Python that has transformers 5.23.0 and Jinja2 3.1.6 (test/tokenizers/setup.sh makes one):

    python golden.py > golden.json
"""

import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

VARS = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Wetter in Köln? 🌧"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 3, "exact": 1.0, "units": None, "ok": True}}}]},
        {"role": "tool", "content": "rain"},
        {"role": "user", "content": [{"type": "text", "text": " and now? "}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "The <weather> & 'more' \"quoted\"\n", "parameters": {
        "type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer", "default": 5}}, "required": ["z"]}}}],
    "n": 7, "neg": -7, "f": 2.5, "whole": 3.0, "tiny": 1e-7, "huge": 1e22, "big": 123456789012345678901234567890, "t": True, "no": None,
    "s": "hello World", "u": "äöü ß ΑΣ ﬁ İ 𝒳", "ws": " \t x y \u00a0\n", "empty": "", "el": [], "ed": {},
    "l": [3, 1, 2], "names": ["b", "A", "c", "B"], "d": {"b": 1, "a": {"x": [1, 2]}, "items": "mine", "C": 3},
    "rows": [{"k": "x", "v": 2, "o": {"p": 1}}, {"k": "Y", "v": 1, "o": {"p": 2}}, {"k": "x", "v": 3}],
    "nested": [[1, [2, 3]], [4]], "lines": "one\n\n two\r\nthree\x0bfour",
    "tree": [{"n": "a", "kids": [{"n": "b", "kids": []}, {"n": "c", "kids": [{"n": "d", "kids": []}]}]}],
    "esc": "q'uo\"te\\ \u200b\u2028\x7f\x01é\U0001f600\ue000",
}

# One expression per line.
EXPRESSIONS = (pathlib.Path(__file__).parent / "expressions.txt").read_text().splitlines()


TEMPLATES = [
    # White space.
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \nb\n  {% endif %}\nc", "  {{ n }}\n", "  {{- n }}\n x", "a {{- n -}} b", "a\n\n{%- if t -%}\n\n b \n{%- endif -%}\n\nc",
    "{% if t %}x{% endif %}\n\ny", "{{ n }}\n\n", "a\n\n", "a\n", "\n", "", "  {#- c -#}  x", "a {# c #} b", "a\n  {# c #}\nb", "  {%+ if t %}x{% endif %}", "  {% if t +%}\nx{% endif %}",
    "{% if t -%}\n  x\n  {%- endif %}\ny", "a\r\nb\rc\r\n", "{# a {{ b }} {% c %} #}x", "{% raw %}{{ x }}{% if %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "  {% raw %}\n x{% endraw %}\ny",
    "{{ '{{' }} {{ '%}' }} {{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {}}}}", "{%- set x = 1 -%}\n  {{ x }}", "\t {% set x = 1 %}\t\n{{ x }}", "x{% set y = 1 %}\n{{ y }}", "{{+ n }}", "\u00a0{%- if t %}x{% endif %}",
    "line\n    {% for i in l %}\n    - {{ i }}\n    {% endfor %}\nend", "{% for i in l -%}\n {{ i }}\n{% endfor %}", "{ { n } }", "{{n}}{%if t%}1{%endif%}", "{{ n\n}}\n{{\nn }}", "{%\nif t\n%}x{% endif %}", "{{ '}}' ~ \"{%\" }}",
    "{{ \"a\\\nb\" }}", "#}", "%}", "}}", "{{ n", "{% if t", "{# x", "{% raw %}x", "{% if t %}x", "{% endif %}", "{% nope %}", "{% else %}", "{{ }}", "{% %}", "{{ n }", "{% for %}{% endfor %}",
    # Statements.
    "{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}", "{% if no %}a{% elif n %}b{% else %}c{% endif %}", "{% if no %}a{% elif el %}b{% else %}c{% endif %}", "{% if undef %}a{% endif %}b", "{% if undef.x %}a{% endif %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in el %}x{% else %}none{% endfor %}", "{% for x in undef %}x{% else %}none{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in n %}{% endfor %}",
    "{% for k, v in d.items() %}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% else %}e{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}e{% endfor %}", "{% for x in range(4) %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{% for y in l %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in tree recursive %}{{ loop.depth }}{{ i.n }}{% if i.kids %}({{ loop(i.kids) }}){% endif %}{% endfor %}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in el %}{% break %}{% else %}e{% endfor %}", "{% for x in l %}{% break %}{% else %}e{% endfor %}", "{% for x in l %}{{ x }}{% endfor %}{{ x is defined }}", "{% set x = 9 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in l %}{% if loop.first %}{% set q = 1 %}{% endif %}{{ q is defined }}{% endfor %}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.y = 1 %}{{ ns.y }}{{ ns }}", "{% set n.x = 1 %}", "{% set ns.x = 1 %}", "{% set ns = namespace() %}{% set ns._y = 1 %}", "{% set d.x = 1 %}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x is string }}", "{% set x | upper | trim %} a {% endset %}[{{ x }}]", "{% set x | replace('a', 'b') %}aa{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set true = 1 %}", "{% set x = %}", "{% set 1 = 2 %}", "{% set messages = messages[1:] %}{{ messages | length }}", "{% set l = l + [4] %}{{ l }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aac{% endfilter %}", "{% print n %}", "{% print n, s %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a is defined }}{{ n }}{% endmacro %}{{ m() }}",
    "{% set q = 1 %}{% macro m() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ m() }}", "{% macro m() %}{% set z = 1 %}{{ z }}{% endmacro %}{{ m() }}{{ z is defined }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(x) %}<{{ caller() }}>{{ x }}{% endmacro %}{% call m(1) %}body{{ n }}{% endcall %}", "{% macro m() %}{{ caller('a', 'b') }}{% endmacro %}{% call(x, y) m() %}{{ x }}+{{ y }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}{% if caller is defined %}c{% else %}n{% endif %}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(x) %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{% endmacro %}{{ m(1) }}{{ m }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(a, b='d') -%}\n  {{ a }}{{ b }}\n{%- endmacro -%}\n[{{ m('x') }}]",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('a') | upper }}{{ m('b') ~ 'c' }}{{ m(1) == '1' }}{{ m(none) }}", "{{ dict(**{'a': 1}) }}{{ range(*[1, 3]) | list }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], **{'b': 2}) }}{{ m(1, *[2]) }}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% generation %}a{{ n }}{% endgeneration %}b", "{% generation %}{% set z = 1 %}{% endgeneration %}{{ z is defined }}", "{%- for m in messages %}\n{%- if m.role == 'assistant' %}\n{%- generation %}x{% endgeneration %}\n{%- endif %}\n{%- endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "{% set g = [1, 2] | select %}{{ g | first }}{{ g | list }}", "{% set it = d.items() %}{{ it | list | length }}{{ it | list | length }}",
    "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% do l.append(1) %}", "{% trans %}x{% endtrans %}", "{% debug %}", "{{ super() }}",
    "{% for m in messages %}{{ '<' + m['role'] + '>' }}{% if m.content is string %}{{ m.content | trim }}{% else %}{% for p in m.content %}{{ p.text if p.type == 'text' else '[' + p['type'] + ']' }}{% endfor %}{% endif %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}",
    "{% for m in messages if m.role in ['user', 'tool'] %}{{ loop.index }}{{ m.role }}{% endfor %}", "{{ messages | map(attribute='role') | unique | join(',') }}", "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}", "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | list | length }}",
    "{% for x in l %}{% set _ = x %}{% endfor %}{{ _ is defined }}", "{%- macro render(p, depth=0) -%}\n{%- for k, v in p.items() -%}\n{{ '  ' * depth }}{{ k }}:{% if v is mapping %}\n{{ render(v, depth + 1) }}{% else %} {{ v | tojson }}\n{% endif %}{%- endfor -%}\n{%- endmacro -%}\n{{ render(tools[0].function.parameters) }}",
    "{% set x = 'a' if t else 'b' %}{{ x }}", "{% set content = messages[2].content or 'none' %}{{ content }}", "{{ 'a' if messages[2].tool_calls is defined and messages[2].tool_calls else 'b' }}", "{% if messages[-1].content is not string and messages[-1].content | length == 2 %}y{% endif %}", "{% if 'x' is defined and not (undef is defined) %}y{% endif %}", "{{ (messages | last).role }}{{ (messages | first)['role'] }}", "{{ raise_exception('Bad ' ~ n) }}",
]


def render(template):
    try:
        return {"text": _compile_jinja_template(template).render(**json.loads(json.dumps(VARS)))}
    except Exception as error:  # noqa: BLE001 - whatever the reference refuses must be refused
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    cases = []
    for template in [f"{{{{ {e} }}}}" for e in EXPRESSIONS] + TEMPLATES:
        cases.append({"template": template, **render(template)})
    json.dump({"vars": VARS, "cases": cases}, sys.stdout, ensure_ascii=True, indent=1)
    print()


main()
