"""Test that names of formats that users and other servers rely on do not go away."""

from gateway.config.validation import TEMPLATE_FORMATS
from gateway.formats import FORMATS, canonical_name, format_names

OURS = """
    native auto think hermes_json qwen_xml harmony llama3_json llama4_pythonic mistral deepseek_v3 deepseek_v31 dsml_v32
    dsml_v4 dsml_v41 glm45_xml glm47_xml ling3_xml spark25 poolside_v1 kimi_k2 kimi_k3 minimax_m2 minimax_m3 gemma4
    functiongemma pythonic lfm2_pythonic olmo3_pythonic nemotron3_xml nemotron_nano_v2 seed_oss_xml step3 step3p5_xml
    mimo_xml granite_json granite4_json granite_thinking_xml granite_20b phi4_functools firefunction2 cohere3 cohere4
    commandr_plus ernie45 hunyuan_a13b hy_v3 hy_v4 internlm jamba longcat xlam gigachat3 gigachat35 apertus
    minicpm5_xml minicpmv_xml reka k2_horizon dots inkling muse_glimmer plamo3 functionary31 functionary32 apriel
    sarashina llmjp_harmony bare_json response_template solar_open2 solar_open openpangu
"""
VLLMS = """
    hermes qwen3_json qwen3_coder qwen3_xml openai llama3_json llama4_json mistral deepseek_v3 deepseek_v31 deepseek_v32
    deepseek_v4 deepseek_v41 glm45 glm47 kimi_k2 kimi_k3 minimax_m2 minimax_m3 gemma4 functiongemma pythonic
    llama4_pythonic lfm2 olmo3 seed_oss step3 step3p5 step5 mimo granite granite4 granite-20b-fc phi4_mini_json
    cohere_command3 cohere_command4 ernie45 hunyuan_a13b hy_v3 hy_v4 internlm jamba longcat xlam gigachat3 apertus
    minicpm5 poolside_v1 ling3 k2_horizon dots inkling muse musespark1x muse_glimmer plamo3 hf beam qwen3 openai_gptoss
    deepseek_r1 nemotron_v3 minimax_m2_append_think granite_thinking_parser minicpmv holo2 solar_open2
"""
SGLANGS = """
    deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 glm glm45 glm47 gpt-oss kimi_k2 kimi_k3 llama3 mistral
    pythonic qwen qwen25 qwen3_coder step3 step3p5 minimax-m2 minimax-m3 interns1 nanbeige trinity hermes hunyuan lfm2
    gigachat3 gigachat35 gemma4 mimo apertus2509 minicpm5 poolside_v1 ling3 spark25 iquest_q1 k2_horizon dots inkling
    muse cohere_command4 response_template deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 kimi qwen3 qwen3-thinking
    minimax minimax-append-think nemotron_3
"""


def test_format_names_are_fixed():
    assert set(OURS.split()) == set(FORMATS)
    assert all(canonical_name(name) == name for name in FORMATS)


def test_format_names_include_the_parsers_of_vllm():
    assert set(VLLMS.split()) <= format_names()


def test_format_names_include_the_parsers_of_sglang():
    assert set(SGLANGS.split()) <= format_names()


def test_format_names_of_response_template_are_known_to_the_config():
    assert set(TEMPLATE_FORMATS) == {name for name in format_names() if canonical_name(name) == "response_template"}
