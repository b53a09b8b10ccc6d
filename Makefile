# Kiln's commands. `make help` lists them.
BUILD   ?= build/release
FUZZ_SECONDS ?= 60
JOBS    ?= $(shell nproc)
OCR     ?= ../shared/models/ppocr/ch_PP-OCRv4_rec_infer
PRESET_FLAGS ?= -DCMAKE_BUILD_TYPE=Release

.PHONY: help build run test test-packages docs exhaustive bench lint asan tsan fuzz fuzz-corpus compose-test clean packages

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

packages:
	@./tools/install_packages.sh build

build: packages ## release binaries under build/release/bin (installs missing Debian packages)
	@mkdir -p $(BUILD)
	@cmake -S . -B $(BUILD) -G Ninja $(PRESET_FLAGS) >$(BUILD)/configure.log 2>&1 || { tail -20 $(BUILD)/configure.log; exit 1; }
	@ninja -C $(BUILD) -j$(JOBS) $(TARGETS)

run: packages ## the main job: a fleet on this machine reads text lines, plans arrive, a second worker joins warm
	@$(MAKE) --no-print-directory build TARGETS="kiln kiln-worker kiln-cache kiln-compile kiln-compile-child kiln-validate-child"
	@BUILD=$(BUILD) ./tools/main_job.sh

test-packages:
	@./tools/install_packages.sh test

test: test-packages build ## build and run all tests
	@ctest --test-dir $(BUILD) --output-on-failure -j2 $(CTEST_FLAGS)

exhaustive: build ## tests that try every value (elementary functions over all floats): minutes
	@ctest --test-dir $(BUILD) -C Exhaustive -L exhaustive --output-on-failure -V

docs: build ## write the pages of docs/ that follow from tables
	@KILN_WRITE_DOCS=1 $(BUILD)/test-bin/docs_test --gtest_brief=1

bench: build ## benchmarks: kernels, interpreter, compile time, models, beside other runtimes (see bench/README.md)
	@./tools/install_packages.sh bench
	@cmake -S . -B $(BUILD) -DKILN_BENCH=ON >/dev/null && ninja -C $(BUILD) -j$(JOBS)
	@$(BUILD)/bench-bin/kernel_bench
	@$(BUILD)/bench-bin/micro_bench --json bench/results/micro.json
	@$(BUILD)/bench-bin/interp_bench --benchmark_out=$(BUILD)/interp.json --benchmark_out_format=json
	@$(BUILD)/bench-bin/dispatch_bench --benchmark_out=$(BUILD)/dispatch.json --benchmark_out_format=json
	@python3 bench/interp/results.py $(BUILD)/interp.json $(BUILD)/dispatch.json bench/results/interp.json
	@$(BUILD)/bench-bin/compile_bench $(OCR).onnx $(dir $(OCR))vectors/$(notdir $(OCR))/test_data_set_* --json bench/results/compile.json
	@$(BUILD)/bench-bin/tune_bench $(OCR).onnx $(dir $(OCR))vectors/$(notdir $(OCR))/test_data_set_* --json bench/results/tuning.json
	@python3 bench/models/origin.py --build $(BUILD)
	@python3 bench/models/peers.py --build $(BUILD) $(BENCH_FLAGS)

lint: ## clang-format over all sources
	@./tools/install_packages.sh lint
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 --dry-run -Werror

asan: packages ## address and undefined behaviour sanitizers: build with clang and test in build/fuzz (the tests of .ci/asan_tests)
	@JOBS=$(JOBS) ./tools/sanitize.sh address

tsan: packages ## thread sanitizer: build and run the tests of .ci/tsan_tests in build/tsan
	@JOBS=$(JOBS) ./tools/sanitize.sh thread

compose-test: build ## the fleet scenario in containers, as docker-compose.yml says (needs root and a Docker engine)
	@./.ci/compose

fuzz: packages ## libFuzzer targets with clang and sanitizers in build/fuzz, FUZZ_SECONDS (60) each; FUZZ_TARGETS="records …" chooses
	@JOBS=$(JOBS) ./tools/sanitize.sh fuzz
	@./tools/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

fuzz-corpus: build ## writes the seeds of tests/fuzz/corpus anew
	@$(BUILD)/bin/write_corpus tests/fuzz/corpus

clean: ## removes build/
	@rm -rf build
