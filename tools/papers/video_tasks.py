# SPDX-License-Identifier: Apache-2.0
"""Data sets of questions along videos, as streams of `weir eval videotasks`: a stream for each video, its frames up to
the moment of each question, the published prompt, answer and score. Every question is asked aside: it leaves no
trace."""

import math

# OVO-Bench (Li et al. 2025, arXiv 2501.05510), its constant.py.
OVO_CHOICE = """
Question: {}
Options:
{}

Respond only with the letter corresponding to your chosen option (e.g., A, B, C).\x20
Do not include any additional text or explanation in your response.
"""
OVO_COUNT = """
You're watching a video in which people may perform a certain type of action repetively.\x20
The person performing this kind of action are referred to as 'they' in the following statement.
You're task is to count how many times have different people in the video perform this kind of action in total.
One complete motion counts as one.\x20
Now, answer the following question: {}
Provide your answer as a single number (e.g., 0, 1, 2, 3…) indicating the total count.
Do not include any additional text or explanation in your response.
"""
OVO_STEP = """
You're watching a tutorial video which contain a sequential of steps.\x20
The following is one step from the whole procedures:\x20
{}
Your task is to determine if the man or woman in the video is currently performing this step.
Answer only with “Yes” or “No”.
Do not include any additional text or explanation in your response.
"""
OVO_ENOUGH = """
You're responsible of answering questions based on the video content.\x20
The following question are relevant to the latest frames, i.e. the end of the video.
{}
Decide whether existing visual content, especially latest frames, i.e. frames that near the end of the video, provide enough information for answering the question.
Answer only with “Yes” or “No”.
Do not include any additional text or explanation in your response.
"""  # noqa: E501

# StreamingBench (Lin et al. 2024, arXiv 2411.03628), its src/benchmark.
STREAMING_CHOICE = """You are an advanced video question-answering AI assistant. You have been provided with some frames from the video and a multiple-choice question related to the video. Your task is to carefully analyze the video and provide the best answer to question, choosing from the four options provided. Respond with only the letter (A, B, C, or D) of the correct option.

Question: {}

Options:
{}

The best option is:"""  # noqa: E501
STREAMING_PROACTIVE = """You are an advanced image question-answering AI assistant. You have been provided with images and a question related to the images. Your task is to carefully analyze the images and provide the answer to the question. You need to carefully confirm whether the images content meet the conditions of the question, and then output the correct content.

Question: {}

The answer is:
"""  # noqa: E501

EGOSCHEMA = """{}
{}
Answer with the letter of the right option."""


def streams(rounds, frames_of, fps):
    """Lines of questions.jsonl from (where, video, second, line), videos in the order in which they first come."""
    videos = {}
    for where, video, second, line in rounds:
        videos.setdefault(video, []).append((second, where, line))
    for stream, (video, of_video) in enumerate(videos.items()):
        frames, shown = None, 0
        for second, where, line in sorted(of_video, key=lambda one: one[0]):
            frames = frames if frames is not None else frames_of(video, where)
            # At least the first frame, whose time is 0.
            until = len(frames) if second == math.inf else min(max(math.ceil(second * fps), 1), len(frames))
            row = {"stream": stream, **line, "aside": True}
            if until > shown:
                row["frames"] = frames[shown:until]
                shown = until
            yield row


def lettered(options):
    return [f"{chr(65 + i)}. {option}" for i, option in enumerate(options)]


def ovo(samples, field):
    """(where, video, second, line) of data/ovo_bench_new.json."""
    for where, sample in samples:
        task, video = field(sample, "task", where), field(sample, "video", where)
        if task not in ("REC", "SSR", "CRR"):
            options = "; ".join(lettered(field(sample, "options", where))) + ";"
            line = {"kind": task, "question": OVO_CHOICE.format(field(sample, "question", where), options)}
            line |= {"answer": chr(65 + field(sample, "gt", where)), "metric": "letter"}
            yield where, video, field(sample, "realtime", where), line
            continue
        for test in field(sample, "test_info", where):
            if task == "REC":
                asked = f"How many times did they {field(sample, 'activity', where)}?"
                line = {"question": OVO_COUNT.format(asked), "answer": str(field(test, "count", where))}
            else:
                form = OVO_STEP if task == "SSR" else OVO_ENOUGH
                asked = field(test, "step", where) if task == "SSR" else field(sample, "question", where)
                line = {"question": form.format(asked), "answer": "Yes" if field(test, "type", where) else "No"}
            line |= {"kind": task, "metric": "digits" if task == "REC" else "yes_no"}
            yield where, video, field(test, "realtime", where), line


def seconds(stamp):
    return sum(int(part) * 60**i for i, part in enumerate(reversed(stamp.split(":"))))


def streamingbench(samples, field):
    """The same of src/data/questions_*.json; those about what was said before (sqa) without the earlier answers."""
    n_polls = 0
    for where, entry in samples:
        for subset in entry if isinstance(entry, list) else [entry]:
            video = field(subset, "video_path", where).removeprefix("./videos/")
            for sample in field(subset, "questions", where):
                kind, start = field(sample, "task_type", where), seconds(field(sample, "time_stamp", where))
                question = field(sample, "question", where)
                if "ground_truth_time_stamp" not in sample:
                    options = field(sample, "options", where)
                    options = options if options[0].startswith("A.") else lettered(options)
                    line = {"kind": kind, "question": STREAMING_CHOICE.format(question, "\n".join(options))}
                    yield where, video, start, {**line, "answer": field(sample, "answer", where), "metric": "initial"}
                    continue
                # Asked every second until it is answered with yes, at most four seconds too late.
                right = seconds(sample["ground_truth_time_stamp"])
                asked = f'{question} Is it the right time to output "{field(sample, "ground_truth_output", where)}"?'
                asked = STREAMING_PROACTIVE.format(f"{asked} You can only answer yes or no.")
                for second in range(start + 1, right + 5):
                    line = {"kind": kind, "question": asked, "answer": "yes" if abs(second - right) <= 2 else "no"}
                    yield where, video, second, {**line, "poll": n_polls}
                n_polls += 1


def egoschema(samples, field, answers, name):
    """The same of questions.json (Mangalam et al. 2023, arXiv 2308.09126), its answers by q_uid; asked at the end."""
    for where, sample in samples:
        uid = field(sample, "q_uid", where)
        if uid not in answers:
            continue
        options = [field(sample, f"option {i}", where) for i in range(5)]
        question = EGOSCHEMA.format(field(sample, "question", where), "\n".join(lettered(options)))
        line = {"kind": "egoschema", "question": question, "answer": chr(65 + answers[uid]), "metric": "initial"}
        yield where, name.format(id=uid), math.inf, line
