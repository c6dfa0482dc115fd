// SPDX-License-Identifier: Apache-2.0

// An assembly file, though empty, lets functions be declared without a body: those of linkname.go are linked to.
