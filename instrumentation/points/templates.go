package points

import "embed"

//go:embed *.tmpl
var templates embed.FS

// HookModule is the import path of the hook in templates.
const HookModule = "trommel.dev/hook"

// Template returns the text of a template, by the name of its file.
func Template(name string) ([]byte, error) { return templates.ReadFile(name) }
