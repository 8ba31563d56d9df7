// Package browser shows the pages of package report in a headless Chromium: for their tests, and for pictures of them.
package browser

import (
	"context"
	"errors"
	"os/exec"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// ErrNoChromium says that no Chromium is installed.
var ErrNoChromium = errors.New("no Chromium is installed: apt-get install chromium")

// Start starts a browser with one window. The context is for chromedp's functions; cancel ends the browser.
func Start(parent context.Context) (ctx context.Context, cancel func(), err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, nil, ErrNoChromium
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// Its sandbox needs either an ordinary user or user namespaces. The pages are our own, and are files.
		chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(parent, options...)
	ctx, end := chromedp.NewContext(allocator)
	cancel = func() { end(); stop() }
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

// Open opens a file in the window. The scheme is light or dark; the window has that size, in pixels.
func Open(ctx context.Context, file, scheme string, width, height int64) error {
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		return err
	}
	return chromedp.Do(ctx, chromedp.EmulateViewport(width, height), chromedp.Navigate("file://"+file))
}

// Ready waits until the scripts of a run's page have drawn it. It returns how long that took since the page was asked
// for, in milliseconds.
func Ready(ctx context.Context) (milliseconds float64, err error) {
	return chromedp.Run(ctx, chromedp.Poll[float64](`+document.documentElement.dataset.ready`))
}
