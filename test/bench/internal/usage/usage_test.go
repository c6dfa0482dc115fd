// SPDX-License-Identifier: Apache-2.0

package usage

import "testing"

func TestCPUTicks(t *testing.T) {
	tests := map[string]struct {
		stat    string
		want    int
		wantErr bool
	}{
		"user and kernel time are added": {
			stat: "17 (kueue) S 1 17 17 0 -1 4194560 900 0 0 0 120 35 0 0 20 0 9 0 100 0 0", want: 155,
		},
		"a name may hold spaces and parentheses": {
			stat: "17 (a) b (c)) S 1 17 17 0 -1 4194560 900 0 0 0 7 3 0 0 20 0 9 0 100 0 0", want: 10,
		},
		"a line that ends too early is an error": {stat: "17 (kueue) S 1 17", wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := cpuTicks(tc.stat)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("cpuTicks() = %d, %v; want %d, error %t", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestMebibytes(t *testing.T) {
	tests := map[string]struct {
		status  string
		want    float64
		wantErr bool
	}{
		"the high-water mark is read": {status: "Name:\tkueue\nVmHWM:\t   81920 kB\nVmRSS:\t 70000 kB\n", want: 80},
		"a zombie has none":           {status: "Name:\tkueue\nState:\tZ (zombie)\n", wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := mebibytes(tc.status, "VmHWM")
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("mebibytes() = %g, %v; want %g, error %t", got, err, tc.want, tc.wantErr)
			}
		})
	}
}
