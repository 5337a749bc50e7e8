package picture

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var picture = flag.String("picture", "", "draw the rush into this SVG file")

// The picture in pixels. Chosen: it is legible on a phone and stands in one screen of a README.
const (
	width, height = 960, 250
	perRow        = 14
	step          = 36 // between two places in line
	lineX, lineY  = 640, 95
	siteX, siteY  = 740, 82
	glide         = 350 * time.Millisecond // from one place to the next
)

// A spot is a place of the picture.
type spot struct{ x, y int }

// A move brings a visitor to a spot.
type move struct {
	at time.Duration
	to spot
}

// draw draws the rush as an SVG that moves by CSS: it needs no script, and stands still for people
// that prefer less motion.
func draw(t *testing.T, visits []visit) {
	t.Helper()
	if *picture == "" {
		return
	}
	length := visits[0].left
	for _, v := range visits {
		length = max(length, v.left)
	}
	length += 2 * time.Second
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`font-family="system-ui,sans-serif" font-size="17" fill="#6b7280">`+"\n", width, height)
	b.WriteString("<title>A rush of visitors: the room admits six at once, the others wait in order</title>\n<style>\n")
	fmt.Fprintf(&b, "g,circle{animation:%.2fs linear infinite}\n"+
		"@media(prefers-reduced-motion:reduce){g,circle{animation-play-state:paused;animation-delay:-8s}}\n",
		length.Seconds())
	tracks := moves(visits)
	for i, track := range tracks {
		fmt.Fprintf(&b, "#v%d{animation-name:v%d}@keyframes v%d{%s}\n", i, i, i, glides(track, length))
	}
	waiting, inside := counts(visits)
	fmt.Fprintf(&b, "#w{animation-name:w;animation-timing-function:step-end}@keyframes w{%s}\n", steps(waiting, length))
	fmt.Fprintf(&b, "#i{animation-name:i;animation-timing-function:step-end}@keyframes i{%s}\n", steps(inside, length))
	fmt.Fprintf(&b, "#k{animation-name:k;animation-timing-function:step-end}@keyframes k{0%%{opacity:0}"+
		"%s{opacity:1}%s{opacity:0}}\n", percent(killedAt, length), percent(killedAt+downFor+2*time.Second, length))
	b.WriteString("</style>\n")
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="176" height="112" rx="14" fill="none" stroke="#2563eb" stroke-width="3"/>`+
		"\n", siteX-26, siteY-32)
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#2563eb" font-weight="600">your site: at most %d</text>`+"\n",
		siteX-22, siteY-44, limit)
	counter(&b, "w", "waiting", 140, 222)
	counter(&b, "i", "inside", siteX, 222)
	fmt.Fprintf(&b, `<g id="k" opacity="0"><text x="%d" y="222" fill="#dc2626" font-weight="600">`+
		`kill -9 of headgate: nobody loses a place</text></g>`+"\n", 280)
	for i, v := range visits {
		fmt.Fprintf(&b, `<circle id="v%d" r="12" fill="hsl(%d 70%% 55%%)"/>`+"\n", i, int(360*v.arrived/(7*time.Second)))
	}
	b.WriteString("</svg>\n")
	err := os.WriteFile(*picture, []byte(b.String()), 0o644) //nolint:gosec // a public picture
	if err != nil {
		t.Fatal(err)
	}
}

// counter writes a text with a number that a strip of all numbers shows through a window.
func counter(b *strings.Builder, id, label string, x, y int) {
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text><svg x="%d" y="%d" width="30" height="24"><g id="%s" font-weight="600">`,
		x+32, y, label, x, y-18, id)
	for n := range visitors + 1 {
		fmt.Fprintf(b, `<text x="24" y="%d" text-anchor="end">%d</text>`, 18+n*24, n)
	}
	b.WriteString("</g></svg>\n")
}

// moves returns the way of each visitor: in line, inside, and out.
func moves(visits []visit) [][]move {
	tracks := make([][]move, len(visits))
	slots := make([]int, limit)
	for i := range slots {
		slots[i] = -1
	}
	for _, at := range moments(visits) {
		ahead := 0
		for i, v := range visits {
			to := spot{-20, lineY}
			switch {
			case v.left <= at:
				to = spot{width + 20, siteY + 24}
				if s := slices.Index(slots, i); s >= 0 {
					slots[s] = -1
				}
			case v.entered <= at:
				s := slices.Index(slots, i)
				if s < 0 {
					s = slices.Index(slots, -1)
					slots[s] = i
				}
				to = spot{siteX + s%3*step + 26, siteY + s/3*step + 6}
			case v.arrived <= at:
				row, place := ahead/perRow, ahead%perRow
				to = spot{lineX - place*step, lineY + row*step}
				ahead++
			}
			if n := len(tracks[i]); n == 0 || tracks[i][n-1].to != to {
				tracks[i] = append(tracks[i], move{at, to})
			}
		}
	}
	return tracks
}

// moments returns the times at which anything changes, in order; those that leave come first.
func moments(visits []visit) []time.Duration {
	all := []time.Duration{0}
	for _, v := range visits {
		all = append(all, v.arrived, v.entered, v.left)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A count is how many there are from a time on.
type count struct {
	at time.Duration
	n  int
}

func counts(visits []visit) (waiting, inside []count) {
	for _, at := range moments(visits) {
		w, i := 0, 0
		for _, v := range visits {
			switch {
			case v.arrived > at || v.left <= at:
			case v.entered <= at:
				i++
			default:
				w++
			}
		}
		waiting, inside = append(waiting, count{at, w}), append(inside, count{at, i})
	}
	return waiting, inside
}

// glides writes the keyframes of a way: a visitor stands still between two moves.
func glides(track []move, length time.Duration) string {
	var b strings.Builder
	frame := func(at time.Duration, s spot) {
		fmt.Fprintf(&b, "%s{transform:translate(%dpx,%dpx)}", percent(at, length), s.x, s.y)
	}
	frame(0, track[0].to)
	for i, m := range track[1:] {
		frame(m.at, track[i].to)
		end := m.at + glide
		if i+2 < len(track) {
			end = min(end, track[i+2].at)
		}
		frame(end, m.to)
	}
	frame(length, track[len(track)-1].to)
	return b.String()
}

// steps writes the keyframes of a strip of numbers.
func steps(counts []count, length time.Duration) string {
	var b strings.Builder
	for i, c := range counts {
		if i == 0 || counts[i-1].n != c.n {
			fmt.Fprintf(&b, "%s{transform:translateY(%dpx)}", percent(c.at, length), -24*c.n)
		}
	}
	return b.String()
}

func percent(at, length time.Duration) string {
	return fmt.Sprintf("%.2f%%", min(100, 100*at.Seconds()/length.Seconds()))
}
