// Package dynamic reports whether an executable is linked dynamically, so that it needs files of its machine.
package dynamic

import (
	"debug/elf"
	"io"
	"strings"
)

// Loader returns the path of the program that loads an executable for Linux with its libraries; empty: it is static.
func Loader(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return LoaderOf(f)
}

// LoaderOf is Loader for an executable that is open.
func LoaderOf(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}
