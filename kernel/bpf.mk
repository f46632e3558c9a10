# SPDX-License-Identifier: GPL-2.0
# Builds NAME.bpf.o for the kernel whose types are in $(BTF), from NAME.bpf.c and the files in HEADERS. A Makefile sets both and includes this
# file. Needs make, clang, bpftool, and the headers of libbpf.
BTF ?= /sys/kernel/btf/vmlinux
OUTPUT ?= build
CLANG ?= clang
BPFTOOL ?= bpftool
PREFIX ?= /usr/local
ARCHITECTURE := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(patsubst riscv64,riscv,$(shell uname -m))))

OBJECT := $(OUTPUT)/$(NAME).bpf.o

.PHONY: all install clean
all: $(OBJECT)

# The types of another kernel may be older than the object, so they are always written again.
.PHONY: $(OUTPUT)/vmlinux.h
$(OUTPUT)/vmlinux.h:
	mkdir -p $(OUTPUT)
	$(BPFTOOL) btf dump file $(BTF) format c > $@

$(OBJECT): $(NAME).bpf.c $(HEADERS) $(OUTPUT)/vmlinux.h
	$(CLANG) -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCHITECTURE) -O2 -g -Wall -Werror -Wno-missing-declarations \
		-I$(OUTPUT) -I. -c $(NAME).bpf.c -o $(OUTPUT)/$(NAME).o
	$(BPFTOOL) gen object $@ $(OUTPUT)/$(NAME).o

install: $(OBJECT)
	install -D -m 644 $(OBJECT) $(DESTDIR)$(PREFIX)/lib/pronto/$(NAME).bpf.o

clean:
	rm -rf $(OUTPUT)
