// Picture takes a picture of the timeline and of the versions on a run's page.
//
//	go run ./picture PAGE.html OUT.png
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/trommel-dev/trommel/internal/report/browser"
)

// arrange leaves only what the picture shows.
//
//go:embed arrange.js
var arrange string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: picture PAGE.html OUT.png")
		os.Exit(2)
	}
	if err := take(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func take(page, out string) error {
	page, err := filepath.Abs(page)
	if err != nil {
		return err
	}
	limited, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	ctx, cancel, err := browser.Start(limited)
	if err != nil {
		return err
	}
	defer cancel()
	if err := browser.Open(ctx, page, "light", 1160, 4000); err != nil {
		return err
	}
	if _, err := browser.Ready(ctx); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`!!document.querySelector('#versions-chart svg')`)); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](arrange)); err != nil {
		return err
	}
	// The parts are drawn again at their new places.
	drawn := `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](drawn, chromedp.EvalAwaitPromise)); err != nil {
		return err
	}
	data, err := chromedp.Run(ctx, chromedp.Screenshot(`#picture`))
	if err != nil {
		return err
	}
	if data, err = small(data); err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

// small encodes a picture again, with the 256 colours that it has most of: it is in the repository.
func small(data []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	pixels := map[color.RGBA]int{}
	box := full.Bounds()
	coarse := func(x, y int) color.RGBA {
		r, g, b, _ := full.At(x, y).RGBA()
		round := func(v uint32) uint8 { return uint8(min(255, (v>>8+2)/5*5)) }
		return color.RGBA{round(r), round(g), round(b), 255}
	}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			pixels[coarse(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.RGBA) int {
		return cmp.Or(pixels[b]-pixels[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range colors[:min(len(colors), 256)] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(box, palette)
	index := map[color.RGBA]uint8{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			c := coarse(x, y)
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			few.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few)
	return b.Bytes(), err
}
