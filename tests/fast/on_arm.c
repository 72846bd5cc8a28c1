/* Calls one function of decode.c or training.c on memory that test_arm.py has written to a file, and writes that
   memory back. Compiled for another processor with -include of both.

   The file: a Call, the places of `pointers` pointers, then `size` bytes of memory. Wherever a
   pointer should be, in the memory or among the arguments, Python has put a place in the memory. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char name[16];
    int64_t arguments; /* their place in the memory */
    int64_t result, pointers, size;
} Call;

static int64_t called(const char *name, const int64_t *a) {
    if (!strcmp(name, "lanes")) return lanes();
    if (!strcmp(name, "decode")) return decode((const Model *)a[0], (const Step *)a[1]);
    if (!strcmp(name, "draw")) return draw((const Drawing *)a[0]);
    if (!strcmp(name, "pack")) {
        pack((const Number *)a[0], a[1], a[2], (Number *)a[3], a[4], a[5]);
        return 0;
    }
    if (!strcmp(name, "pack_int8")) {
        pack_int8((const Number *)a[0], a[1], a[2], (uint8_t *)a[3], a[4], a[5]);
        return 0;
    }
#ifdef BFLOAT16
    if (!strcmp(name, "attention")) return attention_gradient((const Attention *)a[0]);
#endif
    fprintf(stderr, "on_arm.c calls no function %s\n", name);
    exit(1);
}

static void moved(size_t count, size_t wanted) {
    if (count == wanted) return;
    perror("on_arm.c");
    exit(1);
}

int main(int count, char **arguments) {
    Call call;
    FILE *file = count == 2 ? fopen(arguments[1], "r+b") : NULL;
    moved(file != NULL, 1);
    moved(fread(&call, sizeof call, 1, file), 1);
    int64_t *places = malloc(8 * call.pointers + 1);
    char *memory = aligned_alloc(64, (call.size + 63) / 64 * 64);
    moved(fread(places, 8, call.pointers, file), call.pointers);
    moved(fread(memory, 1, call.size, file), call.size);
    for (int64_t i = 0; i < call.pointers; i++) *(int64_t *)(memory + places[i]) += (int64_t)memory;
    call.result = called(call.name, (int64_t *)(memory + call.arguments));
    for (int64_t i = 0; i < call.pointers; i++) *(int64_t *)(memory + places[i]) -= (int64_t)memory;
    rewind(file);
    moved(fwrite(&call, sizeof call, 1, file), 1);
    fseek(file, 8 * call.pointers, SEEK_CUR);
    moved(fwrite(memory, 1, call.size, file), call.size);
    return fclose(file) != 0;
}
