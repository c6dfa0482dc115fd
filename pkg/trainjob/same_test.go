// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSameMeaning(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"equal bytes":                            {a: `{"a":[1,"x",null,true]}`, b: `{"a":[1,"x",null,true]}`, want: true},
		"another order of keys":                  {a: `{"a":1,"b":2}`, b: `{"b":2,"a":1}`, want: true},
		"a number and the same amount as string": {a: `{"limits":{"nvidia.com/gpu":8}}`, b: `{"limits":{"nvidia.com/gpu":"8"}}`, want: true},
		"one amount in two units":                {a: `[{"requests":{"memory":"1024Mi"}}]`, b: `[{"requests":{"memory":"1Gi"}}]`, want: true},
		"a size limit in two units":              {a: `{"emptyDir":{"sizeLimit":"2048Mi"}}`, b: `{"emptyDir":{"sizeLimit":"2Gi"}}`, want: true},
		"another amount":                         {a: `{"limits":{"nvidia.com/gpu":8}}`, b: `{"limits":{"nvidia.com/gpu":"4"}}`},
		"a part of a resource in two units":      {a: `{"resourceFieldRef":{"divisor":"1024Mi"}}`, b: `{"resourceFieldRef":{"divisor":"1Gi"}}`, want: true},
		"labels with the names of amounts":       {a: `{"labels":{"limits":"1","sizeLimit":"1","divisor":"1"}}`, b: `{"labels":{"limits":"1.0","sizeLimit":"1.0","divisor":"1.0"}}`},
		"a node selector called limits":          {a: `{"nodeSelector":{"limits":"1"}}`, b: `{"nodeSelector":{"limits":"1.0"}}`},
		"a driver's attribute called sizeLimit":  {a: `{"csi":{"volumeAttributes":{"sizeLimit":"1Gi"}}}`, b: `{"csi":{"volumeAttributes":{"sizeLimit":"1024Mi"}}}`},
		"text that reads like an amount":         {a: `{"env":[{"name":"V","value":"1.10"}]}`, b: `{"env":[{"name":"V","value":"1.1"}]}`},
		"numbers that a float takes for one":     {a: `9007199254740993`, b: `9007199254740992`},
		"strings that are no amounts":            {a: `"python"`, b: `"Python"`},
		"one string more":                        {a: `["a"]`, b: `["a","b"]`},
		"another order of a list":                {a: `["a","b"]`, b: `["b","a"]`},
		"one key more":                           {a: `{"a":1}`, b: `{"a":1,"b":null}`},
		"another key":                            {a: `{"a":1}`, b: `{"b":1}`},
		"null and zero":                          {a: `null`, b: `0`},
		"true and a string":                      {a: `true`, b: `"true"`},
		"a map and a list":                       {a: `{}`, b: `[]`},
		"a string and a map":                     {a: `"a"`, b: `{}`},
		"no JSON at all":                         {a: `{`, b: `{`},
		"nothing":                                {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
				expect.Same(t, "Unexpected SemanticallyEqual", tc.want, SemanticallyEqual([]byte(pair[0]), []byte(pair[1])))
			}
		})
	}
}
