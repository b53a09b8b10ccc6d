#!/usr/bin/env python3
"""Keeps the figures of Google Benchmark's JSON: results.py FROM.json... TO.json"""
import json
import sys

rows = []
for path in sys.argv[1:-1]:
    with open(path) as file:
        for row in json.load(file)["benchmarks"]:
            if row.get("run_type") == "iteration":
                counters = {}
                if "per_instruction" in row:   # in seconds
                    counters["per_instruction_ns"] = round(row["per_instruction"] * 1e9, 1)
                rows.append({"name": row["name"], "cpu_" + row["time_unit"]: round(row["cpu_time"], 2), **counters})
with open(sys.argv[-1], "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
