// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// report is the tables of docs/forecast.md.
type report struct {
	jobs, futures, longest int
	replayed               time.Duration
	rows                   [][]string
}

func rowsOf(limits bool, made []forecasted) [][]string {
	known, one := "without limits", "mean running times"
	if limits {
		known, one = "with limits", "limits as running times"
	}
	var p10, p50, p90, recent, single int
	var width []float64
	var errors [3][]time.Duration
	for _, f := range made {
		p10 += before(f.Wait, f.Band.P10)
		p50 += before(f.Wait, f.Band.P50)
		p90 += before(f.Wait, f.Band.P90)
		recent += before(f.Wait, &f.Recent)
		single += before(f.Wait, &f.Single)
		said50 := ptr.Deref(f.Band.P50, ahead)
		if f.Band.P90 != nil {
			width = append(width, float64(*f.Band.P90)/float64(max(said50, time.Minute)))
		}
		for n, said := range []time.Duration{said50, f.Recent, f.Single} {
			errors[n] = append(errors[n], (f.Wait - said).Abs())
		}
	}
	all := strconv.Itoa(len(made))
	share := func(n int) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(max(1, len(made)))) }
	return [][]string{
		{"ours, " + known, all, share(p10), share(p50), share(p90), fmt.Sprintf("%.1f", middle(width)), inMinutes(middle(errors[0])), mean(errors[0])},
		{"mean of the last hour's waits", all, "", share(recent), "", "", inMinutes(middle(errors[1])), mean(errors[1])},
		{"one future, " + one, all, "", share(single), "", "", inMinutes(middle(errors[2])), mean(errors[2])},
	}
}

// before reports whether a job started no later than was said; it did where no time was said.
func before(wait time.Duration, said *time.Duration) int {
	if said == nil || wait <= *said {
		return 1
	}
	return 0
}

func middle[T cmp.Ordered](all []T) (none T) {
	if len(all) == 0 {
		return none
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func mean(all []time.Duration) string {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return inMinutes(sum / time.Duration(max(1, len(all))))
}

func inMinutes(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// The tables stand between these marks.
const (
	opens  = "<!-- trace: made by make forecast-trace -->"
	closes = "<!-- end of trace -->"
)

func (r *report) text() string {
	head := []string{"forecast", "waits", "started before P10", "before P50", "before P90", "median P90/P50", "median error", "mean error"}
	return fmt.Sprintf("%d jobs, replayed in %s. Of those that waited longer than a minute, after the first day and with at most %d in their queue, a sample; %d futures each.\n\n%s",
		r.jobs, r.replayed.Round(time.Second), r.longest, r.futures, pages.Table(append([][]string{head}, r.rows...)...))
}

func (r *report) write(page string) error {
	if page == "-" {
		_, err := fmt.Print(r.text())
		return err
	}
	return pages.Fill(page, opens, closes, "\n"+r.text())
}
