"""Names of runs in the rows of `weir eval`, shared by the tables and the charts."""


def split(options):
    """Options at commas outside double quotes."""
    parts, quoted, start = [], False, 0
    for at, char in enumerate(options):
        if char == '"' and (at == 0 or options[at - 1] != "\\"):
            quoted = not quoted
        elif char == "," and not quoted:
            parts.append(options[start:at])
            start = at + 1
    return [part for part in parts + [options[start:]] if part]


def short(policy, all_policies):
    """The policy with those options only in which runs of that policy differ."""
    name, _, options = policy.partition(":")
    pairs = dict(part.partition("=")[::2] for part in split(options))
    other = [dict(part.partition("=")[::2] for part in split(text.partition(":")[2]))
             for text in all_policies if text.partition(":")[0] == name]
    differing = [f"{key}={value}" for key, value in pairs.items() if any(o.get(key) != value for o in other)]
    return name + (":" + ",".join(differing) if differing else "")
