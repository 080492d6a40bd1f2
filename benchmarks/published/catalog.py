"""The claims, in the order of the page."""

from __future__ import annotations

from published.model import Claim, Rule

NVIDIA = "https://developer.nvidia.com/blog/"
BASETEN = "https://www.baseten.co/blog/"
CLAIMS = (
    Claim(
        name="single-user",
        part="single-user",
        title="One user of gpt-oss-120b on 8 × B200",
        published="500 tokens/s",
        source="Baseten",
        url=BASETEN + "sota-performance-for-gpt-oss-120b-on-nvidia-gpus",
        date="August 2025",
        unit="tokens/s",
        figure=500,
        assumed="Baseten states the layout (TP8 and EP1 with TensorRT-LLM and Dynamo), but not the "
        "lengths and not the load at the time of the measurement. The cases assume one request at "
        "a time, the graph `gpt-oss-120b-b200-latency.yaml` and two pairs of lengths.",
        change="The figure is from OpenRouter, which measures at the client, with other requests "
        "at the same time, so the engine alone can be faster. If a figure of the engine alone were "
        "above the interval, the verdict would be **published figure above the interval**.",
    ),
    Claim(
        name="eagle3",
        part="eagle3",
        title="One user of gpt-oss-120b on 8 × B200 with EAGLE-3",
        published="650 tokens/s",
        source="Baseten",
        url=BASETEN + "how-we-made-the-fastest-gpt-oss-on-nvidia-gpus-60-percent-faster",
        date="October 2025",
        unit="tokens/s",
        figure=650,
        assumed="Artificial Analysis measured the figure; its default test has inputs of 10,000 "
        "tokens and outputs of at least 1,500. Baseten does not publish the acceptance rates. The "
        "cases have these lengths, one request at a time, the graph "
        "`gpt-oss-120b-b200-latency-eagle3.yaml`, three draft tokens and acceptance lengths from "
        "table 1 of [SPEED-Bench](https://arxiv.org/abs/2604.09557), measured with one of NVIDIA's "
        "draft models on TensorRT-LLM.",
        change="A verdict needs measured points with speculative decoding, or the acceptance "
        "rates of the published run and the load during the measurement.",
    ),
    Claim(
        name="rack",
        part="rack",
        title="Throughput of gpt-oss-120b on GB200 NVL72 (72 GPUs)",
        published="1.5 million tokens/s",
        source="NVIDIA",
        url=NVIDIA + "delivering-1-5-m-tps-inference-on-nvidia-gb200-nvl72-nvidia-accelerates-"
        "openai-gpt-oss-models-from-cloud-to-edge",
        date="August 2025",
        unit="million tokens/s",
        figure=1.5,
        assumed="NVIDIA does not state the lengths, the engine and the layout. The cases assume 36 "
        "workers of the graph `gpt-oss-120b-gb200-throughput.yaml` and 50,000 concurrent requests, "
        "which are replayed on one worker and multiplied. The first case has the lengths of "
        "Dynamo's recipe for GB200.",
        change="The intervals are made from only six measured points, which are of single GPUs and "
        "older software, so they are wide. Measurements of the same layout would make them "
        "narrower. For comparison, NVIDIA's result in MLPerf Inference 6.0 on 72 GB200 is 0.90 "
        "million tokens/s, with other lengths and an SLO (scenario Server, "
        "[measured points](measured-points.md)).",
    ),
    Claim(
        name="users",
        part="rack",
        title="Concurrent users of gpt-oss-120b on GB200 NVL72",
        published="50,000 users at 1.5 million tokens/s, so 30 tokens/s each",
        source="NVIDIA",
        url=NVIDIA + "delivering-1-5-m-tps-inference-on-nvidia-gb200-nvl72-nvidia-accelerates-"
        "openai-gpt-oss-models-from-cloud-to-edge",
        date="August 2025",
        unit="tokens/s per user",
        figure=30,
        assumed="The compared figure is the throughput of the previous claim divided by 50,000. "
        "NVIDIA does not state the speed of a user; 30 tokens/s follows from its two figures.",
        change="The verdict is that of the previous claim. In the replays, all 50,000 requests "
        "run at the same time, and their KV cache fits. With much longer requests it would not.",
    ),
    Claim(
        name="interactivity",
        part="interactivity",
        title="Interactivity of gpt-oss-120b with inputs of 32k tokens, disaggregated",
        published="up to 4 × that of aggregated serving at the same throughput",
        source="NVIDIA",
        url=NVIDIA + "dynamo-0-4-delivers-4x-faster-performance-slo-based-autoscaling-and-real-"
        "time-observability",
        date="August 2025",
        unit="×",
        figure=4,
        assumed="NVIDIA states B200, Dynamo and TensorRT-LLM, but not the graphs. The cases assume "
        "8 GPUs, 9 requests/s, inputs of 32,768 tokens and outputs of 1,024, and the "
        "disaggregated graph that `plan` recommends. A throughput counts as equal from 0.9 × that "
        "of this graph.",
        change="The factor depends mostly on the aggregated graph. A verdict needs the published "
        "graphs and measured points with disaggregation.",
    ),
    Claim(
        name="one-80gb-gpu",
        part="memory",
        title="Memory of gpt-oss-120b on one GPU with 80 GB",
        published="fits",
        source="OpenAI",
        url="https://github.com/openai/gpt-oss",
        date="August 2025",
        unit="GiB for the KV cache",
        figure=0.56,
        rule=Rule.FITS,
        assumed="The cases are an H100 (79.2 GiB) with the default settings of each engine. The "
        "KV cache of one request of 8,192 tokens (0.56 GiB) must fit.",
        change="A full context of 131,072 tokens needs about 4.5 GiB with vLLM, which is less than "
        "predicted but more than the lower end of the interval. With SGLang's default "
        "settings, 13.5 GiB are reserved for other uses, of which about 2 are needed; raise "
        "`mem-fraction-static`.",
    ),
    Claim(
        name="16-gb",
        part="memory",
        title="Memory of gpt-oss-20b in 16 GB",
        published="fits",
        source="OpenAI",
        url="https://github.com/openai/gpt-oss",
        date="August 2025",
        unit="GiB for the KV cache",
        figure=0.38,
        rule=Rule.FITS,
        assumed="16 GB are 14.9 GiB; a card that is sold as 16 GB has 15.9 GiB. OpenAI does not "
        "state the engine. The KV cache of one request of 8,192 tokens (0.38 GiB) must fit. "
        "llama.cpp loads a GGUF file of 12.1 GB, which is smaller than the checkpoint (13.8 GB) "
        "that the other engines load. For its buffers, penstock "
        "[assumes 1 GiB](llamacpp.md#gpt-oss-20b-on-a-pc-with-a-16-gb-rtx-gpu). The lower end of "
        "its interval is with the 2.7 GB that [llama.cpp's guide]"
        "(https://github.com/ggml-org/llama.cpp/discussions/15396) states.",
        change="The model fits with llama.cpp, not with the default settings of vLLM. The desktop "
        "and other programs on the GPU reduce the memory that is left.",
    ),
    Claim(
        name="llm-d",
        part="llm-d",
        title="TTFT p50 of gpt-oss-120b on 16 × H200, disaggregated",
        published="1,108 ms at 45 requests/s of 5,000 + 250 tokens",
        source="llm-d",
        url="https://github.com/llm-d/llm-d/tree/main/guides/pd-disaggregation",
        date="July 2026",
        unit="ms",
        figure=1108,
        assumed="The guide states the graph and the load. The result file has the predictions for "
        "other arrivals, router settings and KV transfer rates; none of them gives the published "
        "TTFT. The predicted time from the first to the last token is 8% longer than the "
        "published one.",
        change="With prefill at 0.65 × the predicted speed, the predicted TTFT is near the "
        "published one. Whether prefill is the cause is an open question, so no prediction uses "
        "this factor.",
    ),
)
