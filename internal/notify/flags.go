package notify

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Flags say which events are passed on, and where to.
type Flags struct {
	on                                         bool
	urlFile, templateFile, authorization, kind string
	reasons                                    []string
}

// Register adds the flags.
func (n *Flags) Register(f *pflag.FlagSet) {
	f.BoolVar(&n.on, "notify", false, "pass events on: to the log, and to the webhook of --notify-url-file")
	f.StringVar(&n.urlFile, "notify-url-file", "", "`file` with the URL of a webhook, such as one of a mounted Secret")
	f.StringVar(&n.templateFile, "notify-template-file", "",
		"`file` with the template of the webhook's body (default: JSON with all fields, and text)")
	f.StringVar(&n.kind, "notify-content-type", "application/json", "content `type` of the webhook's body")
	f.StringVar(&n.authorization, "notify-authorization-file", "",
		"`file` with the value of the header Authorization of requests to the webhook")
	f.StringSliceVar(&n.reasons, "notify-reasons", nil,
		"reasons of the events that are passed on, such as Failed,Injected; '*' for all (default: all warnings)")
}

// Options are those of the recorder; nil: nothing is passed on.
func (n *Flags) Options() (*Options, error) {
	if !n.on {
		if n.urlFile != "" {
			return nil, fmt.Errorf("--notify-url-file %s: say --notify, too", n.urlFile)
		}
		return nil, nil
	}
	o := &Options{ContentType: n.kind, AuthorizationFile: n.authorization, Reasons: n.reasons}
	for _, from := range []struct {
		file string
		to   *string
	}{{n.urlFile, &o.URL}, {n.templateFile, &o.Template}} {
		if from.file == "" {
			continue
		}
		data, err := os.ReadFile(from.file)
		if err != nil {
			return nil, fmt.Errorf("notifications: %w", err)
		}
		*from.to = strings.TrimSpace(string(data))
	}
	return o, nil
}
