#!/usr/bin/env python3
"""Keeps the figures of Google Benchmark's JSON: results.py FROM.json... TO.json"""
import json
import sys

rows = []
for path in sys.argv[1:-1]:
    with open(path) as file:
        for row in json.load(file)["benchmarks"]:
            if row.get("run_type") == "iteration":
                counters = {key: round(value, 3) for key, value in row.items()
                            if isinstance(value, float) and key not in ("real_time", "cpu_time")}
                rows.append({"name": row["name"], "cpu_" + row["time_unit"]: round(row["cpu_time"], 2), **counters})
with open(sys.argv[-1], "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
